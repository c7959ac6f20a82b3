//! A holder whose lease lasts, whatever others send.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_client::{Client, HeldLease, Session, SessionOptions};
use ringfence_tests::{Cluster, Options};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::measure::{PATIENCE, PATIENT, term};

/// A cluster of real processes, and a client that holds a lease in it.
pub(crate) struct Holder {
    pub(crate) cluster: Cluster,
    pub(crate) leader: usize,
    term: u64,
    ttl: Duration,
    _client: Client,
    session: Session,
    held: HeldLease,
    /// Its window when nothing disturbs it.
    whole: Duration,
}

impl Holder {
    pub(crate) async fn begin(ttl: Duration) -> Self {
        let cluster = Cluster::start(Options {
            flags: PATIENT.map(str::to_owned).to_vec(),
            ..Options::alone()
        })
        .await;
        let leader = cluster.wait_for_leader(PATIENCE).await;
        let term = term(&cluster.caller(), leader).await;
        let client = Client::builder().endpoints(cluster.endpoints());
        let client = client.connect().await.unwrap();
        let options = SessionOptions {
            ttl,
            identity: "honest".to_owned(),
        };
        let session = client.open_session(options).await.unwrap();
        let held = session.acquire("honest/lease").send().await.unwrap();
        let whole = held.term().remaining();
        Self {
            cluster,
            leader,
            term,
            ttl,
            _client: client,
            session,
            held,
            whole,
        }
    }

    /// Looks on for two TTLs while the attack goes on, which counts its answers; how many there were.
    pub(crate) async fn lasts(&self, mut attack: JoinSet<()>, answered: &AtomicU64) -> u64 {
        let (begun, whole) = (now(), self.whole);
        let mut least = whole;
        while begun.elapsed() < 2 * self.ttl && self.held.term().is_valid() {
            least = least.min(self.held.term().remaining());
            sleep(Duration::from_millis(20)).await;
        }
        let answered = answered.load(Ordering::Relaxed);
        println!(
            "{answered} attacks were answered; {:?} between two keep-alives at most, of a window of \
             {whole:?}",
            whole.saturating_sub(least),
        );
        assert!(
            self.held.term().is_valid() && self.session.is_live(),
            "{:?}",
            begun.elapsed()
        );
        assert!(answered > 100, "no attack");
        assert!(attack.try_join_next().is_none(), "an attacker has ended");
        drop(attack);
        let after = term(&self.cluster.caller(), self.leader).await;
        assert_eq!(after, self.term, "the leader changed");
        answered
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long an attack lasts"
)]
fn now() -> Instant {
    Instant::now()
}
