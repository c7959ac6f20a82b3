//! Processes that stop, executors that block, wall clocks that jump.

use ringfence_client::{BootClock, Clock};
use ringfence_tests::Wall;
use rustix::process::Signal;

use crate::support::{TTL, Worker, client, cluster, open, within};

#[tokio::test]
async fn pain_14_a_process_stopped_for_longer_than_its_ttl_sees_its_loss_before_it_works() {
    let cluster = cluster(1).await;
    let bob = open(&client(&cluster).await, TTL * 10).await;
    let ttl = TTL.as_millis().to_string();
    for _ in 0..3 {
        let alice = Worker::start(&cluster.endpoints(), &["hold", "db", &ttl], &[]);
        let token: u64 = alice.told("holds ").await.parse().unwrap();
        alice.work_after(BootClock.now()).await;

        alice.signal(Signal::STOP);
        let taken = bob.acquire("db").wait(TTL * 20).send();
        let taken = within("the takeover", taken).await.unwrap();
        let granted = BootClock.now();
        alice.signal(Signal::CONT);
        let lost = alice.told("lost ").await;

        // Each look that said yes was begun before anybody else was granted it.
        let work = alice.work();
        assert!(work.iter().all(|work| work.at < granted), "{work:?}");
        assert!(work.iter().all(|work| work.token == token));
        assert!(taken.token().get() > token);
        assert!(lost.ends_with("within the session's window"), "{lost}");
        taken.release().await.unwrap();
    }
}

#[tokio::test]
async fn pain_14_the_clock_of_belief_is_the_one_that_counts_suspend() {
    // A machine that has been suspended for an hour, as far as a process can tell.
    let mut slept = std::process::Command::new("unshare");
    slept.args(["--time", "--boottime", "3600"]);
    slept.arg(crate::support::WORKER).arg("clocks");
    let told = slept.output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let clock = |name| {
        told.lines()
            .find_map(|line| line.strip_prefix(name)?.parse::<i64>().ok())
    };
    let (Some(belief), Some(standing)) = (clock("belief "), clock("standing ")) else {
        eprintln!("NOT SHOWN with a clock of its own: namespaces of time need the right to them");
        return;
    };
    let here = i64::try_from(BootClock.now().since_boot().as_millis()).unwrap();
    assert!(
        standing <= here,
        "only the clock that counts suspend was moved"
    );
    // It was asked before this was, by as much as a process takes to end.
    let ahead = belief - here;
    assert!((3_540_000..=3_600_000).contains(&ahead), "{ahead} ms ahead");
}

#[tokio::test]
async fn pain_09_an_executor_that_blocks_for_three_ttls_loses_no_lease() {
    let cluster = cluster(1).await;
    let ttl = TTL.as_millis().to_string();
    let pause = (TTL * 3).as_millis().to_string();
    let caller = cluster.caller();

    let worker = Worker::start(&cluster.endpoints(), &["block", "db", &ttl, &pause], &[]);
    let token: u64 = worker.told("holds ").await.parse().unwrap();
    assert_eq!(worker.told("woke ").await, "true");
    worker.told("released").await;

    // The very grant, over all that time: no client was granted it in between.
    let bob = caller.open("bob", TTL).await.unwrap();
    let next = caller.acquire(&bob, 1, "db", Some(TTL)).await.unwrap();
    assert_eq!(next.token, token + 1);
}

/// A worker whose wall clock is this one.
fn worker(wall: &Wall, endpoints: &[String], args: &[&str]) -> Worker {
    let env = wall.environment(env!("CARGO_TARGET_TMPDIR"));
    Worker::start(endpoints, args, &env)
}

#[tokio::test]
async fn pain_13_a_wall_clock_stepped_by_an_hour_both_ways_changes_nothing() {
    let cluster = cluster(1).await;
    let wall = Wall::off_by(0);
    let ttl = TTL.as_millis().to_string();
    let alice = worker(&wall, &cluster.endpoints(), &["hold", "db", &ttl]);
    let start = alice.work_after(BootClock.now()).await;

    for hour in [3_600, -3_600, 0] {
        wall.step_to(hour);
        // Longer than a TTL: it went on being renewed.
        let later = alice.work_after(BootClock.now() + TTL * 2).await;

        let moved = later.wall - start.wall - hour;
        assert!(
            (0..300).contains(&moved),
            "the clock was not stepped: {later:?}"
        );
        assert_eq!(later.token, start.token);
    }
    assert!(!alice.has_told("lost"));
}

#[tokio::test]
async fn pain_13_a_session_is_resumed_where_the_wall_clock_is_two_hours_behind() {
    let cluster = cluster(1).await;
    let (ahead, behind) = (Wall::off_by(3_600), Wall::off_by(-3_600));
    let first = worker(&ahead, &cluster.endpoints(), &["leave", "db/1", "60000"]);
    let left = first.told("left ").await;
    let (handle, token) = left.split_once(' ').unwrap();

    // Twice, so that the second life counts from where the first one was.
    let second = worker(&ahead, &cluster.endpoints(), &["resume", handle, "db/2"]);
    let second_token = second.told("holds ").await;
    let third = worker(&behind, &cluster.endpoints(), &["resume", handle, "db/3"]);
    let third_token = third.told("holds ").await;

    let [ahead, behind] = [second.told("wall ").await, third.told("wall ").await];
    let [ahead, behind] = [ahead, behind].map(|text| text.parse::<i64>().unwrap());
    assert!(behind < ahead - 7_000, "the clocks do not differ");
    let tokens = [token, &second_token, &third_token].map(|text| text.parse::<u64>().unwrap());
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}
