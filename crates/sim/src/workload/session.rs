//! The lives of clients: one process after the other, and in each some sessions.

use std::sync::Arc;
use std::time::Duration;

use ringfence_check::history::BeliefEnd;
use ringfence_client::sim::Host;
use ringfence_client::{Client, Session, SessionOptions};
use tokio::time::sleep;

use super::Work;
use super::holder::{Holder, Holding};
use crate::client::SimClient;
use crate::random::Random;

/// How long a session is worked with.
const SESSION: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(25));
/// How long a client waits before it tries again what failed.
const AGAIN: Duration = Duration::from_millis(200);
/// The most sessions of one client at a time.
const SESSIONS_MAX: u64 = 2;
/// The most workers in one session.
const WORKERS_MAX: u64 = 3;

/// Starts a process on a client's machine that works until the work is over, unless one runs there.
pub fn begin(client: &SimClient, work: &Arc<Work>) {
    let Some(host) = client.start() else { return };
    let (client, work) = (client.clone(), Arc::clone(work));
    let process = Arc::clone(&host);
    drop(host.spawn(async move { live(&client, &process, &work).await }));
}

async fn live(client: &SimClient, host: &Arc<Host>, work: &Arc<Work>) {
    let connected = loop {
        match client.connect(host).await {
            Ok(connected) => break connected,
            Err(_) if work.is_over() => return,
            Err(_) => sleep(AGAIN).await,
        }
    };
    let mut random = Random::new(host.draw());
    for _ in 0..random.within(1..SESSIONS_MAX + 1) {
        let life = Life {
            client: client.clone(),
            host: Arc::clone(host),
            work: Arc::clone(work),
            connected: connected.clone(),
            random: Random::new(random.next()),
        };
        drop(host.spawn(life.sessions()));
    }
}

/// A string of sessions, one behind the other.
struct Life {
    client: SimClient,
    host: Arc<Host>,
    work: Arc<Work>,
    connected: Client,
    random: Random,
}

impl Life {
    async fn sessions(mut self) {
        while !self.work.is_over() {
            let ttl = self.random.pick(&self.work.ttls).copied();
            let options = SessionOptions {
                ttl: ttl.unwrap_or(Duration::from_secs(4)),
                identity: format!("c{}", self.client.number()),
            };
            match self.connected.open_session(options).await {
                Ok(session) => self.one(session).await,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    async fn one(&mut self, session: Session) {
        let lasts = self.work.pace.of(self.random.time(SESSION.0..SESSION.1));
        let until = self.client.world().now() + lasts;
        let mut workers = Vec::new();
        for _ in 0..self.random.within(1..WORKERS_MAX + 1) {
            let holder = Holder {
                client: self.client.clone(),
                host: Arc::clone(&self.host),
                work: Arc::clone(&self.work),
                connected: self.connected.clone(),
                session: session.clone(),
                random: Random::new(self.random.next()),
                until,
            };
            workers.push(self.host.spawn(holder.work()));
        }
        let mut held: Vec<Holding> = Vec::new();
        for worker in workers {
            held.extend(worker.await.ok().flatten());
        }
        match self.random.within(0..3) {
            0 => {
                // Belief ends before the close leaves.
                held.iter().for_each(|held| held.doubt(BeliefEnd::Closed));
                session.close().await.ok();
            }
            1 => {
                for held in held {
                    held.release().await;
                }
                session.close().await.ok();
            }
            // Whatever is dropped is released, and then closed, in the background.
            _ => held.iter().for_each(|held| held.doubt(BeliefEnd::Released)),
        }
    }
}
