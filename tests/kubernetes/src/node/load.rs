//! Clients next to the cluster: they take and give back leases without a pause, and hold others,
//! and tell how long the longest pause was nevertheless.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_client::{Client, HeldLease, Session, SessionOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::say::Watch;

/// How many take and give back.
const BUSY: usize = 4;
/// How many hold.
const HOLDERS: usize = 8;
/// The TTL of all sessions. It is short, so that one that is not kept alive is noticed.
const TTL: Duration = Duration::from_secs(5);
/// How long a lease may be waited for.
const WAIT: Duration = Duration::from_secs(30);

/// A client that is no Pod.
pub(crate) async fn client(endpoints: &[String]) -> Result<Client, String> {
    let connected = Client::connect(endpoints.iter().map(String::as_str)).await;
    connected.map_err(|error| error.to_string())
}

/// A session of a holder.
pub(crate) async fn session(client: &Client, identity: &str) -> Result<Session, String> {
    let options = SessionOptions {
        identity: identity.to_owned(),
        ttl: TTL,
    };
    let opened = client.open_session(options).await;
    opened.map_err(|error| format!("session of {identity}: {error}"))
}

/// A lease, as soon as it can be had.
pub(crate) async fn acquire(session: &Session, name: &str) -> Result<HeldLease, String> {
    let granted = session.acquire(name).wait(WAIT).send().await;
    granted.map_err(|error| format!("acquire {name}: {error}"))
}

/// Holds a lease for as long as this process lives, and prints its token: for those who kill it.
pub(crate) fn hold(endpoint: &str, lease: &str) -> Result<(), String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let session = session(&client(&[endpoint.to_owned()]).await?, "doomed").await?;
        let held = acquire(&session, lease).await?;
        println!("{}", held.token());
        Err(format!("{lease} was lost: {}", held.lost().await))
    })
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Grants that were made.
    pub(crate) grants: u64,
    /// The longest that one client waited from a grant to its next one.
    pub(crate) gap: Duration,
}

/// Clients at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    busy: Vec<JoinHandle<Result<Outcome, String>>>,
    held: Vec<HeldLease>,
}

impl Load {
    /// Starts them; each has a connection of its own.
    pub(crate) fn start(
        runtime: &Runtime,
        connect: impl AsyncFn() -> Result<Client, String>,
    ) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut busy = Vec::new();
        let mut held = Vec::new();
        runtime.block_on(async {
            for number in 0..HOLDERS {
                let holder = session(&connect().await?, &format!("holder-{number}")).await?;
                held.push(acquire(&holder, &format!("held/{number}")).await?);
            }
            for number in 0..BUSY {
                let worker = session(&connect().await?, &format!("worker-{number}")).await?;
                busy.push(tokio::spawn(work(worker, number, stop.clone())));
            }
            Ok(Self { stop, busy, held })
        })
    }

    /// Ends them; an error if any session or lease was lost.
    pub(crate) fn end(self, runtime: &Runtime) -> Result<Outcome, String> {
        self.stop.store(true, Ordering::Relaxed);
        runtime.block_on(async {
            let mut all = Outcome {
                grants: 0,
                gap: Duration::ZERO,
            };
            for worker in self.busy {
                let one = worker.await.map_err(|error| error.to_string())??;
                all.grants += one.grants;
                all.gap = all.gap.max(one.gap);
            }
            for lease in self.held {
                if let Some(loss) = lease.loss() {
                    return Err(format!("{} was lost: {loss}", lease.name()));
                }
                let released = lease.release().await;
                released.map_err(|error| format!("a held lease: {error}"))?;
            }
            Ok(all)
        })
    }
}

async fn work(session: Session, number: usize, stop: Arc<AtomicBool>) -> Result<Outcome, String> {
    let name = format!("busy/{number}");
    let mut outcome = Outcome {
        grants: 0,
        gap: Duration::ZERO,
    };
    let mut last = Watch::start();
    while !stop.load(Ordering::Relaxed) {
        let lease = acquire(&session, &name).await?;
        outcome.grants += 1;
        outcome.gap = outcome.gap.max(last.so_far());
        last = Watch::start();
        let released = lease.release().await;
        released.map_err(|error| format!("release {name}: {error}"))?;
    }
    Ok(outcome)
}
