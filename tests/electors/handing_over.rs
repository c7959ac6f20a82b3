//! Leaving: the next one leads without a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_client::{Client, Successor, WatchItem};

use crate::support::{Story, client, elector, eventually, long, one_node, within};

/// A candidate that tells when it leads, and works until it is dropped.
fn candidate(
    client: &Client,
    name: &str,
    story: &Story,
) -> (
    ringfence_client::CampaignHandle,
    tokio::task::JoinHandle<Result<(), ringfence_client::CampaignError>>,
) {
    let campaign = elector(client, name, long()).campaign("db");
    let handle = campaign.handle();
    let (story, name) = (story.clone(), name.to_owned());
    let running = tokio::spawn(campaign.run(move |leading| {
        story.tell(format!("{name} leads {}", leading.token()));
        std::future::pending::<()>()
    }));
    (handle, running)
}

/// Waits until so many stand in the queue.
async fn waiters(cluster: &ringfence_tests::Cluster, count: u32) {
    let caller = cluster.caller();
    let waiting = async {
        loop {
            let lease = caller.get("db").await.unwrap();
            if lease.is_some_and(|lease| lease.waiters == count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the queue", waiting).await;
}

#[tokio::test]
async fn a_leader_that_leaves_hands_over_to_the_next_or_to_the_named_without_a_gap() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let (alice, alice_runs) = candidate(&client, "alice", &story);
    story.until(1, "alice leads").await;
    let (bob, _) = candidate(&client, "bob", &story);
    waiters(&cluster, 1).await;
    let (carol, _) = candidate(&client, "carol", &story);
    waiters(&cluster, 2).await;
    let (_dave, _) = candidate(&client, "dave", &story);
    waiters(&cluster, 3).await;
    let mut watch = client.watch("db");
    while !matches!(watch.next().await, Some(Ok(WatchItem::Reached(_)))) {}

    alice.leave(Successor::Next);
    story.until(1, "bob leads").await;
    within("alice ends", alice_runs).await.unwrap().unwrap();
    bob.step_down(Successor::Identity("dave".into()));
    story.until(1, "dave leads").await;
    assert_eq!(story.count("carol leads"), 0, "dave was named");
    let _unused = carol;

    // Each end stands in the same log entry as the next grant.
    let mut ends = 0;
    let mut last = None;
    while ends < 2 {
        let item = within("the events", watch.next()).await.unwrap().unwrap();
        match item {
            WatchItem::Ended { position, .. } => last = Some(position.index()),
            WatchItem::Granted { position, .. } => {
                assert_eq!(Some(position.index()), last.take(), "a gap");
                ends += 1;
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_named_successor_that_does_not_wait_is_replaced_by_the_next() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let (alice, _) = candidate(&client, "alice", &story);
    story.until(1, "alice leads").await;
    let (bob, bob_runs) = candidate(&client, "bob", &story);
    waiters(&cluster, 1).await;

    alice.leave(Successor::Identity("nobody".into()));
    story.until(1, "bob leads").await;

    // No candidate waits: it is released.
    bob.leave(Successor::Next);
    within("bob ends", bob_runs).await.unwrap().unwrap();
    let lease = cluster.caller().get("db").await.unwrap().unwrap();
    assert_eq!(lease.holder, None);
}

#[tokio::test]
async fn s4_1_each_shard_has_a_lease_and_each_process_takes_its_share() {
    let cluster = one_node().await;
    let held: Vec<_> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let story = Story::new();
    let mut handles = Vec::new();
    let mut runs = Vec::new();
    for (process, held) in held.iter().enumerate() {
        let client = client(&cluster).await;
        let shards = elector(&client, &format!("p{process}"), long())
            .candidates("jobs", 6)
            .at_most(3);
        let mut mine = Vec::new();
        let shards = shards.each(|campaign| {
            mine.push(campaign.handle());
            campaign
        });
        handles.push(mine);
        let (held, story) = (Arc::clone(held), story.clone());
        runs.push(tokio::spawn(shards.run(move |leading| {
            let (held, story) = (Arc::clone(&held), story.clone());
            async move {
                assert!(
                    held.fetch_add(1, Ordering::SeqCst) < 3,
                    "more than its share"
                );
                story.tell(format!("shard {} by {process}", leading.shard().unwrap()));
                let _count = Count(held);
                std::future::pending::<()>().await;
            }
        })));
    }
    let shares = || held.iter().map(|held| held.load(Ordering::SeqCst));
    eventually("all shards are worked on", || shares().eq([3, 3])).await;
    for shard in 0..6 {
        assert!(story.count(&format!("shard {shard} ")) > 0, "{shard}");
    }

    // One leaves: the other has no room for more than its share.
    handles[0].iter().for_each(|h| h.leave(Successor::Next));
    within("it ends", runs.remove(0)).await.unwrap().unwrap();
    assert!(shares().eq([0, 3]), "{:?}", shares().collect::<Vec<_>>());
    handles[1].iter().for_each(|h| h.leave(Successor::Next));
    within("it ends", runs.remove(0)).await.unwrap().unwrap();
}

/// Counts work that runs.
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
