//! Keep-alives of sessions that were never opened, from many connections, and a holder beside them.
//! No caller proves anything, so to the node all of them are one principal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use ringfence_client::{Client, SessionOptions};
use ringfence_tests::{Cluster, Options};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::attackers::{connect, largest};
use crate::keep_alives::asks_on;
use crate::measure::{PATIENCE, PATIENT, WHOLE_MACHINE, term};

/// The TTL of the holder, whose keep-alives are sent three times as often. While such keep-alives had no
/// rate, they came later than 5 s from some thirty connections on, alone on two cores; other tests run
/// beside this one.
const TTL: Duration = Duration::from_secs(10);
/// Connections to the leader, and to each other node, that name as many sessions as a message may.
const LARGE: [usize; 2] = [30, 8];
const SESSIONS: u64 = 10_000;
/// Connections to the leader that name no more than a connection may, whatever its principal does.
const SMALL: usize = 60;
const FEW: u64 = 100;
/// Messages of each of them that are under way.
const UNDER_WAY: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn attack_16_keep_alives_of_invented_sessions_make_those_of_a_holder_no_later_than_its_ttl() {
    let _alone = WHOLE_MACHINE.lock().await;
    let cluster = Cluster::start(Options {
        flags: PATIENT.map(str::to_owned).to_vec(),
        ..Options::default()
    })
    .await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let caller = cluster.caller();
    let before = term(&caller, leader).await;
    let client = Client::builder().endpoints(cluster.endpoints());
    let client = client.connect().await.unwrap();
    let options = SessionOptions {
        ttl: TTL,
        identity: "honest".to_owned(),
    };
    let session = client.open_session(options).await.unwrap();
    let held = session.acquire("honest/lease").send().await.unwrap();
    let whole = held.term().remaining();

    let answered = Arc::new(AtomicU64::new(0));
    let mut attack = JoinSet::new();
    let large = Bytes::from(largest(SESSIONS).encode_to_vec());
    let small = Bytes::from(largest(FEW).encode_to_vec());
    for (at, endpoint) in cluster.endpoints().iter().enumerate() {
        let is_leader = at == leader;
        let attackers = (0..LARGE[usize::from(!is_leader)]).map(|_| &large);
        let attackers = attackers.chain((0..SMALL).map(|_| &small).filter(|_| is_leader));
        for request in attackers {
            let channel = connect(endpoint).await;
            let (request, answered) = (request.clone(), answered.clone());
            attack.spawn(asks_on(channel, request, UNDER_WAY, answered));
        }
    }
    let (begun, mut least) = (now(), whole);
    while begun.elapsed() < 2 * TTL && held.term().is_valid() {
        least = least.min(held.term().remaining());
        sleep(Duration::from_millis(20)).await;
    }

    let answered = answered.load(Ordering::Relaxed);
    println!(
        "{answered} attacks were answered; {:?} between two keep-alives at most, of a window of {whole:?}",
        whole.saturating_sub(least),
    );
    assert!(
        held.term().is_valid() && session.is_live(),
        "{:?}",
        begun.elapsed()
    );
    assert!(answered > 100, "no attack");
    assert!(attack.try_join_next().is_none(), "an attacker has ended");
    drop(attack);
    assert_eq!(term(&caller, leader).await, before, "the leader changed");
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long an attack lasts"
)]
fn now() -> Instant {
    Instant::now()
}
