//! A leader that is paused, became stale, and wakes up.

use rustix::process::Signal;

use crate::support::{Example, Tokens, one_node};

/// `writer N holds …` and so on: the numbers behind `token`.
fn written(lines: &[String]) -> Vec<(u64, u64)> {
    let parsed = lines.iter().filter_map(|line| {
        let rest = line.strip_prefix("wrote ")?;
        let (value, token) = rest.split_once(" under token ")?;
        Some((value.parse().ok()?, token.parse().ok()?))
    });
    parsed.collect()
}

#[tokio::test]
async fn s3_6_a_paused_leader_is_overtaken_and_does_no_harm_when_it_wakes() {
    let cluster = one_node().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let env = [("RINGFENCE_EXAMPLE_FILE", file.to_str().unwrap())];
    let first = Example::start("fenced_writer", &cluster, &env);
    first.story.until(1, "wrote").await;
    let second = Example::start("fenced_writer", &cluster, &env);
    second.story.until(1, "writer").await;

    first.signal(Signal::STOP);
    second.story.until(1, "wrote").await;
    let before = written(&first.story.lines()).len();
    first.signal(Signal::CONT);
    // It notices, one way or the other, and stands in the queue again.
    let waits = first.story.clone();
    waits.until(3, "writer").await;
    second.story.until(4, "wrote").await;

    let (a, b) = (first.story.lines(), second.story.lines());
    let stopped = a
        .iter()
        .any(|line| line.starts_with("lost:") || line.starts_with("the store"));
    assert!(stopped, "{a:?}");
    assert!(written(&a).len() <= before + 1, "{a:?}");
    // No update was lost: each value was written once, in the order of the tokens.
    let mut all = [written(&a), written(&b)].concat();
    all.sort_unstable();
    assert!(
        all.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 <= p[1].1),
        "{all:?}"
    );
}

#[tokio::test]
async fn s3_7_the_number_grows_each_time_the_lease_changes_hands() {
    let cluster = one_node().await;
    let tokens = Tokens::default();
    for _ in 0..4 {
        let mut leader = Example::start("elector", &cluster, &[]);
        leader.story.until(1, "work").await;
        let line = leader
            .story
            .lines()
            .into_iter()
            .find(|l| l.starts_with("work"));
        let token = line.unwrap().rsplit('#').next().unwrap().parse().unwrap();
        tokens.push(token);
        leader.signal(Signal::TERM);
        assert!(leader.end().await);
    }
    assert!(tokens.rise());
}
