//! Disks that hang: what waits for them is bounded (I20), and no caller waits forever.

use std::time::Duration;

use ringfence_core::Millis;
use ringfence_raft::{LOG_UNCOMMITTED_BYTES_MIN, Node, ProposeError, WAL_SEGMENT_BYTES_MIN};
use tokio::task::JoinHandle;

use crate::harness::{Cluster, eventually, holder, open, propose, weighty, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const LIMIT: u64 = 64 << 10;
/// What may be under way when the limit is reached: an entry, and what openraft adds on its own.
const UNDER_WAY: u64 = 8 << 10;
/// Entries that together are several times the limit.
const ENTRIES: u64 = 300;

async fn on_disks_that_may_hang(names: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(names);
    cluster.adjust = |config| {
        config.log_unflushed_max = LIMIT;
        // A leader whose disk hangs for long hands over; here it is to stay.
        config.flush_lag_max = Duration::from_secs(3_600);
        config.timing.leader_wait = Duration::from_millis(500);
        // On a busy machine an election would end what these tests look at: a leader with a disk
        // that hangs cannot follow another one.
        config.timing.election_min = Duration::from_secs(2);
        config.timing.election_max = Duration::from_secs(3);
    };
    cluster.with_disks();
    cluster.start_all().await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_refuses_what_it_would_have_to_keep_in_memory() {
    let cluster = on_disks_that_may_hang(&NAMES).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let session = open(node, 1, Millis::from_secs(60)).await;
    cluster.disks[&leader].hang();

    // The others' disks are a majority: the cluster goes on, as far as the leader's memory may go.
    let mut committed = 0;
    let why = within("a refusal", async {
        for n in 1..=ENTRIES {
            match node.propose(weighty(session, n)).await {
                Ok(_) => committed = n,
                Err(ProposeError::NotDone { why, .. }) => return why,
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("{ENTRIES} entries were taken and none is on the leader's disk");
    })
    .await;
    assert!(why.contains("disk is behind"), "{why}");
    assert!(committed > LIMIT / 2_000, "only {committed} were committed");
    let waiting = node.metrics().wal_unflushed_bytes;
    assert!(waiting <= LIMIT + UNDER_WAY, "{waiting} bytes wait");
    let follower = &cluster.nodes[&cluster.a_follower().await];
    match follower.propose(weighty(session, committed + 1)).await {
        Err(ProposeError::NotDone { why, .. }) => assert!(why.contains("disk is behind"), "{why}"),
        other => panic!("{other:?}"),
    }

    cluster.disks[&leader].go_on();
    propose(node, weighty(session, committed + 1)).await;
    let newest = format!("lease/{}", committed + 1);
    eventually("the lease on every node", || {
        cluster
            .nodes
            .values()
            .all(|node| holder(node, &newest).is_some())
    })
    .await;
    eventually("an empty queue", || node.metrics().wal_unflushed_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_disk_hangs_takes_no_more_than_it_may_keep_in_memory() {
    let cluster = on_disks_that_may_hang(&NAMES).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let slow = cluster.a_follower().await;
    let session = open(leader, 1, Millis::from_secs(60)).await;
    cluster.disks[&slow].hang();
    for n in 1..=ENTRIES {
        propose(leader, weighty(session, n)).await;
    }
    let waiting = cluster.nodes[&slow].metrics().wal_unflushed_bytes;
    assert!(waiting <= LIMIT + UNDER_WAY, "{waiting} bytes wait");

    cluster.disks[&slow].go_on();
    let newest = format!("lease/{ENTRIES}");
    eventually("the newest lease", || {
        holder(&cluster.nodes[&slow], &newest).is_some()
    })
    .await;
}

/// The limits of one disk look at that disk alone: what a majority does not take is on the leader's.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_followers_hang_refuses_what_cannot_be_committed() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        // The limit is least with the shortest segments.
        config.wal_segment_bytes = WAL_SEGMENT_BYTES_MIN;
        config.timing.leader_wait = Duration::from_millis(500);
        // A follower that waits for its disk does not answer, and would be a candidate later.
        config.timing.election_min = Duration::from_secs(15);
        config.timing.election_max = Duration::from_secs(16);
    };
    cluster.with_disks();
    cluster.start_all().await;
    let name = cluster.leader().await;
    let leader = cluster.nodes[&name].clone();
    let session = open(&leader, 1, Millis::from_secs(60)).await;
    let others = || cluster.disks.iter().filter(|(other, _)| **other != name);
    others().for_each(|(_, disk)| disk.hang());

    // Each takes a little more than 1 KB.
    let most = LOG_UNCOMMITTED_BYTES_MIN / 1_000;
    let calls: Vec<_> = (1..=2 * most)
        .map(|n| {
            let leader = leader.clone();
            tokio::spawn(async move { leader.propose(weighty(session, n)).await })
        })
        .collect();
    eventually("a refusal", || calls.iter().any(JoinHandle::is_finished)).await;
    let status = leader.status();
    let waiting = status.last_log_index - status.applied_index;
    // What is under way when the limit is reached is still taken.
    assert!(waiting > most / 2 && waiting < 2 * most, "{waiting} wait");
    tokio::time::sleep(2 * Duration::from_millis(500)).await;
    others().for_each(|(_, disk)| disk.go_on());

    let (mut done, mut refused) = (0, 0);
    for call in calls {
        match within("an answer", call).await.unwrap() {
            Ok(_) => done += 1,
            Err(ProposeError::NotDone { why, .. }) => {
                assert!(why.contains("the other nodes are behind"), "{why}");
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(done >= waiting - 10 && refused > 0, "{done}, {refused}");
    propose(&leader, weighty(session, 1_000_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_hangs_ends_in_time_and_loses_nothing() {
    let mut cluster = on_disks_that_may_hang(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    propose(&node, weighty(session, 1)).await;
    cluster.disks["n1"].hang();
    let caller = node.clone();
    let waiting = tokio::spawn(async move { caller.propose(weighty(session, 2)).await });
    eventually("an entry that waits for the disk", || {
        node.metrics().wal_unflushed_bytes > 0
    })
    .await;

    let ended = tokio::time::timeout(Duration::from_secs(5), node.shutdown());
    assert!(ended.await.is_ok(), "it still waits for its disk");
    match within("an answer", waiting).await.unwrap() {
        Err(ProposeError::Unknown { .. }) => {}
        other => panic!("nobody can know yet: {other:?}"),
    }

    cluster.disks["n1"].go_on();
    // Until the disk has taken the end of the log, the log is in use.
    let node = within("a start", async {
        loop {
            match Node::start(cluster.config("n1")).await {
                Ok(node) => return node,
                Err(error) => {
                    assert!(error.to_string().contains("log"), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    })
    .await;
    cluster.nodes.insert("n1".to_owned(), node.clone());
    cluster.serving("n1").await;
    assert!(holder(&node, "lease/1").is_some());
}
