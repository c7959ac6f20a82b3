//! A thousand sessions whose leader goes.

use std::time::Duration;

use ringfence_client::{BootClock, Clock};
use ringfence_tests::Signal;

use crate::support::{LONG, Worker, cluster, eventually};

const PROCESSES: usize = 8;
const CLIENTS_EACH: usize = 25;
const SESSIONS_EACH: usize = 5;
const SESSIONS: usize = PROCESSES * CLIENTS_EACH * SESSIONS_EACH;
const TTL: Duration = Duration::from_secs(15);

#[tokio::test]
async fn pain_17_of_a_thousand_sessions_none_is_lost_when_the_leader_goes() {
    let mut cluster = cluster(3).await;
    let [clients, sessions] = [CLIENTS_EACH, SESSIONS_EACH].map(|count| count.to_string());
    let ttl = TTL.as_millis().to_string();
    let args = ["crowd", &clients, &sessions, &ttl];
    let mut crowd: Vec<_> = (0..PROCESSES)
        .map(|_| Worker::start(&cluster.endpoints(), &args, &[]))
        .collect();
    for worker in &mut crowd {
        worker.told("ready ").await;
        worker.say("measure").await;
        worker.told("measures").await;
    }

    let leader = cluster.wait_for_leader(LONG).await;
    cluster.signal(leader, Signal::Kill);
    let killed = BootClock.now();
    // Until each window that was open at the kill would be over.
    eventually("a TTL", || BootClock.now() > killed + TTL).await;
    let mut valid = 0;
    let mut took = Vec::new();
    for worker in &mut crowd {
        worker.say("stop").await;
        valid += worker.told("valid ").await.parse::<usize>().unwrap();
        took.extend(worker.numbers("took "));
    }

    took.sort_unstable();
    let at = |permille: usize| Duration::from_micros(took[(took.len() - 1) * permille / 1_000]);
    println!(
        "{} keep-alives over a change of leader: p50 {:?}, p99 {:?}, slowest {:?}",
        took.len(),
        at(500),
        at(990),
        at(1_000)
    );
    assert_eq!(valid, SESSIONS);
    assert!(took.len() > SESSIONS, "{}", took.len());
    assert!(at(1_000) < TTL, "{:?}", at(1_000));
    let now = cluster.wait_for_leader(LONG).await;
    assert_ne!(now, leader, "the leader did not change");
}
