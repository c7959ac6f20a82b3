//! A thousand sessions whose leader goes, and sessions with thousands of leases.

use std::time::Duration;

use ringfence_client::{BootClock, Clock, HeldLease, Session};
use ringfence_tests::Signal;
use tokio::task::JoinSet;

use crate::support::{LONG, Worker, client, cluster_alone, eventually, open, within};

const PROCESSES: usize = 8;
const CLIENTS_EACH: usize = 25;
const SESSIONS_EACH: usize = 5;
const SESSIONS: usize = PROCESSES * CLIENTS_EACH * SESSIONS_EACH;
const TTL: Duration = Duration::from_secs(15);

#[tokio::test]
async fn pain_17_of_a_thousand_sessions_none_is_lost_when_the_leader_goes() {
    let mut cluster = cluster_alone(3).await;
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

/// As many leases as a session may hold.
const LEASES_EACH: usize = 4_096;
const HOLDERS: u64 = 5;
/// How many acquires of a session are under way together.
const TOGETHER: usize = 128;
/// The TTL of these sessions, in seconds.
const SECONDS: u64 = 9;

async fn take_all(session: Session, holder: u64) -> Vec<HeldLease> {
    let mut leases = Vec::new();
    while leases.len() < LEASES_EACH {
        let mut tasks = JoinSet::new();
        for at in leases.len()..(leases.len() + TOGETHER).min(LEASES_EACH) {
            let acquiring = session.acquire(format!("many/{holder}/{at}")).send();
            tasks.spawn(async move { acquiring.await.unwrap() });
        }
        while let Some(lease) = within("a grant", tasks.join_next()).await {
            leases.push(lease.unwrap());
        }
    }
    leases
}

#[tokio::test]
async fn pain_10_twenty_thousand_leases_are_kept_by_one_keep_alive_a_session() {
    let cluster = cluster_alone(1).await;
    let client = client(&cluster).await;
    let mut taking = JoinSet::new();
    for holder in 0..HOLDERS {
        let session = open(&client, Duration::from_secs(SECONDS)).await;
        taking.spawn(take_all(session, holder));
    }
    let mut leases = Vec::new();
    while let Some(taken) = taking.join_next().await {
        leases.extend(taken.unwrap());
    }
    assert_eq!(leases.len(), 20_480);

    let (before, from) = (cluster.applied(0).await, cluster.time(0).await);
    let until = BootClock.now() + Duration::from_secs(2 * SECONDS);
    client.sleep_until(until).await;

    // A keep-alive for each third of a TTL and each session, as often again as one that is late is
    // sent twice, and the cluster's own clock; not one entry for each lease.
    let written = cluster.applied(0).await - before;
    let passed = (cluster.time(0).await - from).as_secs() + 1;
    let most = HOLDERS * 2 * (passed * 3 / SECONDS + 1) + 4 * passed;
    assert!(
        written <= most,
        "{written} entries in {passed} s, {most} allowed"
    );
    let lost = leases
        .iter()
        .filter_map(|lease| lease.loss())
        .collect::<Vec<_>>();
    assert!(lost.is_empty(), "{} lost: {:?}", lost.len(), lost[0]);
}
