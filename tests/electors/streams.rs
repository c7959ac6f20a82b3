//! Watches and floors over the failures of nodes.

use std::collections::BTreeMap;

use ringfence_client::{Floors, FloorsItem, Position, RestartReason, Watch, WatchItem};
use ringfence_tests::{Cluster, Options, Signal};

use crate::support::{LONG, client, elector, long, one_node, within};

/// The tokens granted and ended, up to and with the end of `last`.
async fn events_until(watch: &mut Watch, last: u64) -> Vec<(&'static str, u64)> {
    let mut events = Vec::new();
    loop {
        let item = within("the next event", watch.next())
            .await
            .unwrap()
            .unwrap();
        match item {
            WatchItem::Granted { grant, .. } => events.push(("granted", grant.token.get())),
            WatchItem::Ended { ended, .. } => {
                events.push(("ended", ended.token.get()));
                if ended.token.get() == last {
                    return events;
                }
            }
            WatchItem::Restarted(why) => panic!("begun anew: {why:?}"),
            _ => {}
        }
    }
}

async fn reached(watch: &mut Watch) -> Position {
    loop {
        if let WatchItem::Reached(position) =
            within("a position", watch.next()).await.unwrap().unwrap()
        {
            return position;
        }
    }
}

#[tokio::test]
async fn a_watch_has_no_gaps_and_no_duplicates_while_every_node_is_killed_once() {
    let mut cluster = Cluster::start(Options::default()).await;
    let watching = client(&cluster).await;
    let working = client(&cluster).await;
    let mut watch = watching.watch("db/");
    let first = within("the start", watch.next()).await.unwrap().unwrap();
    assert_eq!(first, WatchItem::Restarted(RestartReason::Start));
    let start = reached(&mut watch).await;

    let elector = elector(&working, "alice", long());
    let mut tokens = Vec::new();
    for node in 0..cluster.len() {
        for turn in 0..4 {
            let lease = elector.campaign(format!("db/{turn}")).lead();
            let lease = within("a grant", lease).await.unwrap();
            tokens.push(lease.token().get());
            lease.release().await.unwrap();
            if turn == 1 {
                cluster.signal(node, Signal::Kill);
                cluster.spawn(node);
            }
        }
    }
    let last = *tokens.last().unwrap();
    let expected: Vec<_> = tokens
        .iter()
        .flat_map(|&t| [("granted", t), ("ended", t)])
        .collect();
    assert_eq!(events_until(&mut watch, last).await, expected);

    // Another process goes on behind a position that this one reached.
    let mut resumed = working.watch_from("db/", start);
    assert_eq!(events_until(&mut resumed, last).await, expected);
}

/// Floors as reported, until the name has that one.
async fn floor(floors: &mut Floors, told: &mut BTreeMap<String, u64>, name: &str, token: u64) {
    while told.get(name) != Some(&token) {
        match within("the next floor", floors.next())
            .await
            .unwrap()
            .unwrap()
        {
            FloorsItem::Floor { name, token } => {
                let before = told.insert(name.to_string(), token.get());
                assert!(before < Some(token.get()), "{name} goes back");
            }
            FloorsItem::ClusterChanged => panic!("the same cluster"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn floors_only_rise_while_the_leader_is_killed() {
    let mut cluster = Cluster::start(Options::default()).await;
    let client = client(&cluster).await;
    let elector = elector(&client, "alice", long());
    let early = elector.campaign("db/early").lead().await.unwrap();
    let mut floors = client.watch_floors("db/");
    let mut told = BTreeMap::new();
    floor(&mut floors, &mut told, "db/early", early.token().get()).await;
    for _ in 0..3 {
        let leader = cluster.wait_for_leader(LONG).await;
        cluster.signal(leader, Signal::Kill);
        let lease = within("a grant", elector.campaign("db/x").lead())
            .await
            .unwrap();
        floor(&mut floors, &mut told, "db/x", lease.token().get()).await;
        lease.release().await.unwrap();
        cluster.spawn(leader);
        cluster.wait_until_serving(LONG).await;
    }
    assert_eq!(told["db/early"], early.token().get());
}

#[tokio::test]
async fn a_watch_of_another_cluster_is_begun_anew_and_says_so() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let foreign = "09090909090909090909090909090909.5.0".parse().unwrap();
    let mut watch = client.watch_from("", foreign);
    let item = within("the start", watch.next()).await.unwrap().unwrap();
    assert_eq!(item, WatchItem::Restarted(RestartReason::ClusterChanged));
    reached(&mut watch).await;
}

#[tokio::test]
async fn a_watch_that_is_refused_ends_with_the_reason() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut watch = client.watch("x".repeat(10_000));
    let refused = within("the refusal", watch.next()).await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
    assert!(watch.next().await.is_none());
}
