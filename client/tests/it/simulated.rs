//! A client in the hands of a simulation: its tasks stand still when its host does, and its chance
//! is the host's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use ringfence_client::sim::{Host, Incoming, Network, Outgoing};
use ringfence_client::{Client, Clock, Moment, Session, SessionOptions, Sleep};
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::v1::{self, ServerFrame, ServerMessage};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The runtime's own time.
struct VirtualClock(Instant);

#[expect(
    clippy::disallowed_methods,
    reason = "virtual time is what is simulated here"
)]
fn virtual_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock(Instant::now()))
}

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        Moment::from_boot(self.0.elapsed())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        Box::pin(tokio::time::sleep_until(self.0 + moment.since_boot()))
    }
}

/// A member that opens every session and keeps it alive, and what it was shown.
#[derive(Clone, Default)]
struct Member {
    secrets: Arc<Mutex<Vec<Vec<u8>>>>,
    keep_alives: Arc<Mutex<usize>>,
}

impl Network for Member {
    fn connect(
        &self,
        _: &str,
        mut outgoing: Outgoing,
    ) -> BoxFuture<'static, Result<Incoming, String>> {
        let (tell, incoming) = mpsc::unbounded_channel();
        let member = self.clone();
        let greeting = v1::Greeting {
            cluster_id: vec![7; 16].into(),
            ..v1::Greeting::default()
        };
        let frame = |id, body| ServerMessage {
            frames: vec![ServerFrame {
                id,
                body: Some(body),
            }],
        };
        tell.send(Ok(frame(0, Body::Greeting(greeting)))).ok();
        drop(tokio::spawn(async move {
            while let Some(message) = outgoing.next().await {
                for asked in message.frames {
                    let body = member.answer(asked.body.unwrap());
                    tell.send(Ok(frame(asked.id, body))).ok();
                }
            }
        }));
        async { Ok(incoming) }.boxed()
    }
}

impl Member {
    fn answer(&self, asked: Ask) -> Body {
        match asked {
            Ask::Open(open) => {
                self.secrets.lock().unwrap().push(open.secret.to_vec());
                Body::Open(v1::OpenResponse {
                    session: 1,
                    ttl_ms: open.ttl_ms(),
                    ..v1::OpenResponse::default()
                })
            }
            Ask::KeepAlive(_) => {
                *self.keep_alives.lock().unwrap() += 1;
                Body::KeepAlive(v1::KeepAliveResponse::default())
            }
            Ask::Acquire(acquire) => Body::Acquire(v1::AcquireResponse {
                grant: Some(v1::Grant {
                    name: acquire.name,
                    token: 1,
                    session: 1,
                    ..v1::Grant::default()
                }),
                ..v1::AcquireResponse::default()
            }),
            other => panic!("nobody asks {other:?} here"),
        }
    }
}

async fn open(host: &Arc<Host>, member: &Member) -> Session {
    open_by(host, Arc::new(member.clone())).await
}

async fn open_by(host: &Arc<Host>, member: Arc<Member>) -> Session {
    let host = Arc::clone(host);
    let opening = Arc::clone(&host).spawn(async move {
        let client = Client::builder()
            .endpoints(["n1:1"])
            .clock(virtual_clock())
            .simulated(host, member)
            .connect()
            .await
            .unwrap();
        let ttl = Duration::from_secs(3);
        let options = SessionOptions {
            ttl,
            ..SessionOptions::default()
        };
        client.open_session(options).await.unwrap()
    });
    opening.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_frozen_host_sends_nothing_and_believes_no_longer_than_its_window() {
    let host = Host::new(tokio::runtime::Handle::current(), 1);
    let member = Member::default();
    let session = open(&host, &member).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(session.is_live());

    host.freeze();
    let before = *member.keep_alives.lock().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(session.is_live(), "the window is not over yet");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*member.keep_alives.lock().unwrap(), before);
    host.thaw();

    assert!(!session.is_live());
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_a_dead_host() {
    let host = Host::new(tokio::runtime::Handle::current(), 1);
    let member = Member::default();
    let session = open(&host, &member).await;
    host.kill();
    let before = *member.keep_alives.lock().unwrap();

    // A close would be asked for, which the member does not know.
    drop(session);
    tokio::time::sleep(Duration::from_secs(30)).await;

    assert!(host.is_dead());
    assert_eq!(*member.keep_alives.lock().unwrap(), before);
    assert!(host.spawn(async {}).await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_remembered_is_freed() {
    let host = Host::new(tokio::runtime::Handle::current(), 1);
    let network = Arc::new(Member::default());
    let used = Arc::downgrade(&network);
    let session = open_by(&host, network).await;
    let lease = session.acquire("jobs/x").send().await.unwrap();
    host.freeze();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // The client has to remember it: the cluster may still grant the lease.
    assert!(!lease.is_valid());
    assert_ne!(used.strong_count(), 0);

    host.kill();
    drop((lease, session));
    tokio::time::sleep(Duration::from_secs(1)).await;

    assert_eq!(used.strong_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_make_equal_chance() {
    let mut secrets = Vec::new();
    for seed in [5, 5, 6] {
        let host = Host::new(tokio::runtime::Handle::current(), seed);
        let member = Member::default();
        let session = open(&host, &member).await;
        host.kill();
        drop(session);
        secrets.push(member.secrets.lock().unwrap().clone());
    }
    assert_eq!(secrets[0], secrets[1]);
    assert_ne!(secrets[0], secrets[2]);
}
