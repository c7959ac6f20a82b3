//! The client's examples, run as their users run them.

use std::time::Duration;

use ringfence_client::Timings;
use rustix::process::Signal;

use crate::support::{Example, Lag, one_node};

/// How much cluster time may pass between the moment at which a session is due and its end (I8).
const SESSION_ENDS_WITHIN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn s0_12_every_example_runs_and_ends_when_it_is_asked_to() {
    let cluster = one_node().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let env = [("RINGFENCE_EXAMPLE_FILE", file.to_str().unwrap())];
    for (name, line) in [
        ("elector", "work 2 "),
        ("cron_singleton", "the job runs"),
        ("work_shards", "works on examples/shards/"),
        ("fenced_writer", "wrote 2 "),
    ] {
        let mut example = Example::start(name, &cluster, &env);
        example.story.until(1, line).await;
        example.signal(Signal::INT);
        assert!(example.end().await, "{name}: {:?}", example.story.lines());
    }
}

#[tokio::test]
async fn s3_4_a_second_process_prints_the_leader_at_once_and_takes_over_after_the_kill() {
    let cluster = one_node().await;
    let times = Timings::default();
    let first = Example::start("elector", &cluster, &[]);
    first.story.until(1, "work").await;
    let me = first.story.lines()[0]
        .strip_prefix("I am ")
        .unwrap()
        .to_owned();
    let lag = Lag::of(&cluster);
    let second = Example::start("elector", &cluster, &[]);
    second.story.until(1, "I am ").await;
    let connected = cluster.time(0).await;
    second.story.until(1, &format!("{me} leads, token ")).await;
    let told = cluster.time(0).await - connected;
    // Sooner than one look of a candidate that has to look.
    let at_once = times.retry_period() + lag.allowance();
    assert!(told <= at_once, "told after {told:?}, {at_once:?} allowed");
    assert_eq!(second.story.count("work"), 0);

    first.signal(Signal::KILL);
    let killed = cluster.time(0).await;
    second.story.until(1, "work").await;
    let took = cluster.time(0).await - killed;
    // It was heard of for the last time before it was killed, and at most a third of a lease duration
    // before. From then on the lease lasts for its duration, and a second at most.
    let least = times.lease_duration() * 2 / 3 - lag.allowance();
    let most = times.lease_duration() + SESSION_ENDS_WITHIN + lag.allowance();
    assert!(
        (least..=most).contains(&took),
        "took over after {took:?}, not within {least:?} to {most:?}"
    );
}

#[tokio::test]
async fn s4_7_of_three_processes_another_takes_over_and_does_the_later_work() {
    let cluster = one_node().await;
    let mut processes: Vec<_> = (0..3)
        .map(|_| Example::start("elector", &cluster, &[]))
        .collect();
    let mut terms = Vec::new();
    for kill in [Signal::TERM, Signal::KILL] {
        let stories: Vec<_> = processes.iter().map(|p| p.story.clone()).collect();
        let waiting = stories
            .iter()
            .map(|story| Box::pin(story.until(1, "work 1 ")));
        let leader = first_of(waiting.collect()).await;
        let leading = processes.remove(leader);
        terms.push(leading.story.lines());
        leading.signal(kill);
        for other in &processes {
            let dead = other.story.count("work");
            assert_eq!(dead, 0, "two work at once: {:?}", other.story.lines());
        }
    }
    processes[0].story.until(3, "work").await;
    assert_eq!(terms.len(), 2);
}

/// Which of these completes first.
async fn first_of<F: Future + Unpin>(mut waiting: Vec<F>) -> usize {
    std::future::poll_fn(|cx| {
        for (at, one) in waiting.iter_mut().enumerate() {
            if std::pin::Pin::new(one).poll(cx).is_ready() {
                return std::task::Poll::Ready(at);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
