//! Wall clocks that no test has set: tokens of a new cluster begin at the clock.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_core::Millis;
use ringfence_raft::Role;

use crate::harness::{Cluster, acquired, eventually, holder, open};

/// 2027-01-15.
const LATER_SECONDS: u64 = 1_800_000_000;

/// Three lives from the same copy of the disk, as fast as they can be: each may begin in the second
/// in which the one before it ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_rolled_back_within_a_second_repeats_no_token() {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| config.token_floor = None;
    cluster.start("n1").await;
    cluster.serving("n1").await;
    cluster.crash("n1").await;
    let copy = tempfile::tempdir().unwrap();
    copy_files(&cluster.data_dir("n1"), copy.path());

    let mut tokens = Vec::new();
    for _ in 0..3 {
        let node = cluster.start("n1").await;
        cluster.serving("n1").await;
        let session = open(&node, 1, Millis::from_secs(60)).await;
        tokens.push(acquired(&node, session, 1, "lease").await);
        cluster.crash("n1").await;
        fs::remove_dir_all(cluster.data_dir("n1")).unwrap();
        copy_files(copy.path(), &cluster.data_dir("n1"));
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_files(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forming_waits_for_a_believable_clock_and_goes_on_by_itself() {
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| {
        config.token_floor = None;
        config.hooks.wall_millis = || CLOCK.load(Ordering::Relaxed) * 1_000;
    };
    let node = cluster.start("n1").await;
    eventually("a leader without a cluster", || {
        let status = node.status();
        status.role == Role::Leader && !status.serving && status.applied_index > 0
    })
    .await;
    let term = node.status().term;

    CLOCK.store(LATER_SECONDS, Ordering::Relaxed);
    cluster.serving("n1").await;
    assert_eq!(node.status().term, term, "no election was needed");
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let token = acquired(&node, session, 1, "lease").await;
    assert!(token > LATER_SECONDS << 20, "{token}");

    // A term of a formed cluster waits for one, too: it has to raise the tokens.
    cluster.crash("n1").await;
    CLOCK.store(0, Ordering::Relaxed);
    let node = cluster.start("n1").await;
    eventually("a leader whose term is not open", || {
        node.status().role == Role::Leader
    })
    .await;
    // Longer than any term waits before it opens.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(!node.status().serving);

    CLOCK.store(LATER_SECONDS + 9, Ordering::Relaxed);
    cluster.serving("n1").await;
    assert_eq!(holder(&node, "lease"), Some((session.id, token)));
    let next = acquired(&node, session, 2, "another").await;
    assert!(next > (LATER_SECONDS + 9) << 20, "{next}");
}
