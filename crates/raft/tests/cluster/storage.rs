//! Disks that lose, forget and fill up: a node refuses to go on with what it does not have, and
//! goes on with what it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::{FencingToken, Millis, SessionId};
use ringfence_raft::{
    KeepAlive, Node, ProposeError, SeatError, StartError, StopReason, unexpected_files,
};
use ringfence_wal::RealFs;

use crate::harness::{
    Cluster, Session, acquired, eventually, holder, lose, open, propose, remove, weighty, within,
};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const TTL: Millis = Millis::from_secs(300);

fn small(config: &mut ringfence_raft::NodeConfig) {
    config.wal_segment_bytes = ringfence_raft::WAL_SEGMENT_BYTES_MIN;
    config.timing.leader_wait = Duration::from_millis(500);
}

async fn one(adjust: fn(&mut ringfence_raft::NodeConfig)) -> (Cluster, Node) {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = adjust;
    cluster.with_disks();
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    (cluster, node)
}

/// Files in the folder of a node, but for the lock.
fn files(dir: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = listed.filter(|path| !path.ends_with("lock")).collect();
    files.sort();
    files
}

async fn start_error(cluster: &Cluster, name: &str) -> SeatError {
    match Node::start(cluster.config(name)).await {
        Err(StartError::Seat(error)) => error,
        other => panic!("{name} was not refused: {:?}", other.map(drop)),
    }
}

/// A name, and what happens to the folder of the log.
type Loss<'a> = (&'a str, &'a dyn Fn(&Path));

pub(crate) fn copy_files(from: &Path, to: &Path) {
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

/// As many as one entry does not hold.
#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_acknowledged_losses_is_logged_in_entries_that_every_log_holds() {
    let (_cluster, node) = one(small).await;
    let session = open(&node, 1, TTL).await;
    let lost = lose(&node, session, 3_000).await;
    let keep_alive = |acknowledged| KeepAlive {
        sessions: vec![(session.id, session.secret)],
        acknowledged,
        caller: None,
    };
    let before = node.metrics().last_log_index;
    let noticed = lost.iter().map(|token| (session.id, *token)).collect();
    let kept = within("an answer", node.keep_alive(keep_alive(noticed))).await;
    let kept = kept.unwrap();
    assert!(kept.ended.is_empty(), "{kept:?}");
    assert!(kept.lost.is_empty() && kept.untold.is_empty(), "{kept:?}");
    assert!(node.metrics().last_log_index >= before + 3_000 / 400);

    let sessions = (1..60_000).map(|n| SessionId::new(n << 32).unwrap());
    let request = KeepAlive {
        sessions: sessions.map(|id| (id, session.secret)).collect(),
        acknowledged: Vec::new(),
        caller: None,
    };
    let kept = within("an answer", node.keep_alive(request)).await.unwrap();
    assert!(!kept.ended.is_empty(), "nobody opened these");
    let other = open(&node, 2, TTL).await;
    acquired(&node, other, 1, "lease").await;
}

/// A command that is too long for any log, as no service lets one pass.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_log_holds_is_refused_for_good_and_ends_no_node() {
    let (_cluster, node) = one(small).await;
    let losses = (1..=20_000).map(|n| (SessionId::new(n).unwrap(), FencingToken::new(n).unwrap()));
    let renew = ringfence_core::Renew {
        sessions: Vec::new(),
        acknowledged: losses.collect(),
    };
    match node.propose(ringfence_core::Command::Renew(renew)).await {
        Err(ProposeError::NotDone {
            why,
            retry_after: None,
            ..
        }) => assert!(why.contains("expected at most 32768"), "{why}"),
        other => panic!("{other:?}"),
    }
    let session = open(&node, 1, TTL).await;
    acquired(&node, session, 1, "lease").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_its_log_does_not_start() {
    let (mut cluster, node) = one(small).await;
    let session = open(&node, 1, TTL).await;
    acquired(&node, session, 1, "lease").await;
    cluster.crash("n1").await;
    let data = cluster.data_dir("n1");
    let whole = tempfile::tempdir().unwrap();
    copy_files(&data, whole.path());
    let wal = data.join("wal");
    let empty = |wal: &Path| {
        files(wal)
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
    };
    let no_segment = |wal: &Path| {
        let segments = files(wal).into_iter();
        segments
            .filter(|path| path.extension().is_some())
            .for_each(|path| fs::remove_file(path).unwrap());
    };
    let first_gone = |wal: &Path| fs::remove_file(files(wal).remove(0)).unwrap();
    let zeroed = |wal: &Path| {
        let first = files(wal).remove(0);
        let mut content = fs::read(&first).unwrap();
        content[4_096..].fill(0);
        fs::write(first, content).unwrap();
    };
    let gone = |wal: &Path| fs::remove_dir_all(wal).unwrap();
    let cases: [Loss<'_>; 5] = [
        ("emptied", &empty),
        ("without a segment", &no_segment),
        ("without its first segment", &first_gone),
        ("zeroed behind the header", &zeroed),
        ("removed", &gone),
    ];
    for (case, lose) in cases {
        fs::remove_dir_all(&data).unwrap();
        copy_files(whole.path(), &data);
        lose(&wal);
        let error = start_error(&cluster, "n1").await;
        assert!(
            matches!(error, SeatError::LogMissing { .. }),
            "{case}: {error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("remove this member") && text.contains("new id"),
            "{text}"
        );
    }
    fs::remove_dir_all(&data).unwrap();
    copy_files(whole.path(), &data);
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    assert!(holder(&node, "lease").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_log_begins_behind_its_snapshot_does_not_start() {
    let (mut cluster, node) = one(|config| {
        small(config);
        config.snapshot_log_bytes = 4_096;
        config.snapshot_log_keep = 1;
    })
    .await;
    let session = open(&node, 1, TTL).await;
    for n in 1..=100 {
        acquired(&node, session, n, &format!("lease/{n}")).await;
    }
    eventually("a purged log", || node.metrics().purged_index > 50).await;
    node.shutdown().await;
    cluster.nodes.remove("n1");
    let data = cluster.data_dir("n1");
    assert_eq!(unexpected_files(&RealFs, &data).unwrap(), []);
    for snapshot in files(&data.join("snapshots")) {
        fs::remove_file(snapshot).unwrap();
    }
    let error = start_error(&cluster, "n1").await;
    assert!(
        matches!(error, SeatError::SnapshotMissing { snapshot: 0, .. }),
        "{error:?}"
    );
}

/// Or the next one on this directory would clear it away while it is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_shut_down_leaves_no_snapshot_half_written() {
    let (cluster, node) = one(|config| {
        small(config);
        config.snapshot_log_bytes = 4_096;
    })
    .await;
    let session = open(&node, 1, TTL).await;
    let disk = cluster.disks["n1"].clone();
    disk.hang_in("snapshots");
    for n in 1..=20 {
        acquired(&node, session, n, &format!("lease/{n}")).await;
    }
    let data = cluster.data_dir("n1");
    let unexpected = || unexpected_files(&RealFs, &data).unwrap();
    eventually("a snapshot under way", || !unexpected().is_empty()).await;
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        disk.go_on();
    };
    tokio::join!(node.shutdown(), later);
    assert_eq!(unexpected(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_finds_no_room_ends_no_node_and_is_taken_later() {
    let (cluster, node) = one(|config| {
        small(config);
        config.snapshot_log_bytes = 4_096;
        config.snapshot_log_keep = 1;
    })
    .await;
    let session = open(&node, 1, TTL).await;
    let disk = &cluster.disks["n1"];
    disk.fill("snapshots", true);
    for n in 1..=60 {
        propose(&node, weighty(session, n)).await;
    }
    eventually("a failed snapshot", || node.metrics().snapshots_failed > 0).await;
    let built = node.metrics().snapshots_built;
    let snapshots = files(&cluster.data_dir("n1").join("snapshots"));
    let partial = |path: &&PathBuf| path.extension().is_some_and(|end| end == "partial");
    assert_eq!(snapshots.iter().find(partial), None, "{snapshots:?}");
    acquired(&node, session, 61, "still/at/work").await;

    disk.fill("snapshots", false);
    eventually("a snapshot", || node.metrics().snapshots_built > built).await;
    eventually("a purged log", || node.metrics().purged_index > 50).await;
    node.shutdown().await;
    let data = cluster.data_dir("n1");
    assert_eq!(unexpected_files(&RealFs, &data).unwrap(), []);
}

/// Proposes until the node refuses, and says how often it did not and why it does.
async fn until_refused(node: &Node, session: crate::harness::Session, from: u64) -> (u64, String) {
    within("a refusal", async {
        for n in from.. {
            match node.propose(weighty(session, n)).await {
                Ok(_) => {}
                Err(ProposeError::NotDone {
                    why, retry_after, ..
                }) => {
                    assert!(retry_after.is_some(), "it may be tried again: {why}");
                    return (n, why);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        unreachable!()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_room_for_its_log_refuses_and_goes_on_when_there_is_room() {
    let (cluster, node) = one(small).await;
    let session = open(&node, 1, TTL).await;
    let disk = &cluster.disks["n1"];
    // Nor is there any for a snapshot, which would shorten the log.
    disk.fill("snapshots", true);
    disk.fill("wal", true);
    let (n, why) = until_refused(&node, session, 1).await;
    assert!(
        why.contains("no room for more log") && why.contains("free space"),
        "{why}"
    );
    let figures = node.metrics();
    assert!(
        figures.wal_no_room && figures.wal_spare_failures > 0,
        "{figures:?}"
    );
    let (same, _) = until_refused(&node, session, n).await;
    assert_eq!(same, n, "nothing is taken");
    assert!(holder(&node, "lease/1").is_some(), "it goes on reading");

    disk.fill("wal", false);
    propose(&node, weighty(session, n)).await;
    assert!(!node.metrics().wal_no_room);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_without_room_for_its_log_stops_acknowledging_and_catches_up_later() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = small;
    cluster.with_disks();
    cluster.start_all().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let follower = cluster.a_follower().await;
    let session = open(&leader, 1, TTL).await;
    cluster.disks[&follower].fill("snapshots", true);
    cluster.disks[&follower].fill("wal", true);
    let node = cluster.nodes[&follower].clone();
    for n in 1..=400 {
        propose(&leader, weighty(session, n)).await;
    }
    assert!(
        node.metrics().wal_no_room,
        "400 KB do not fit in what is prepared"
    );
    assert!(node.status().applied_index < leader.status().applied_index);
    assert_eq!(
        node.status().term,
        leader.status().term,
        "it hears its leader"
    );

    cluster.disks[&follower].fill("wal", false);
    eventually("the follower has caught up", || {
        holder(&node, "lease/400").is_some()
    })
    .await;
}

/// A follower that has acknowledged entries to its leader, and started again without them.
struct Forgetful {
    cluster: Cluster,
    leader: Node,
    name: String,
    data: PathBuf,
    session: Session,
    token: u64,
    reason: StopReason,
}

/// Until it stops. A leader knows what it has heard in its own term: if another one is elected meanwhile,
/// as on a busy machine, that one misses nothing, and all begins again.
async fn forgetful() -> Forgetful {
    for _ in 0..5 {
        let mut cluster = Cluster::formed(&NAMES).await;
        let leader = cluster.nodes[&cluster.leader().await].clone();
        let name = cluster.a_follower().await;
        let session = open(&leader, 1, TTL).await;
        acquired(&leader, session, 1, "before").await;
        eventually("the follower has it", || {
            holder(&cluster.nodes[&name], "before").is_some()
        })
        .await;
        cluster.crash(&name).await;
        let copy = tempfile::tempdir().unwrap();
        let data = cluster.data_dir(&name);
        copy_files(&data, copy.path());

        // It comes back, acknowledges more, and its disk forgets that.
        cluster.start(&name).await;
        let token = acquired(&leader, session, 2, "after").await;
        // The others may have committed it without the follower, and its answer be on its way still: what no
        // leader has heard of, none misses.
        let index = leader.status().applied_index;
        eventually("the leader has heard that it has it", || {
            let members = leader.members();
            let member = members.iter().find(|member| member.name == name);
            member.is_some_and(|member| member.matched >= Some(index))
        })
        .await;
        let term = leader.status().term;
        cluster.crash(&name).await;
        fs::remove_dir_all(&data).unwrap();
        copy_files(copy.path(), &data);

        let node = cluster.start(&name).await;
        let mut status = leader.watch_status();
        let another_term = status.wait_for(|status| status.term != term);
        let reason = tokio::select! {
            biased;
            reason = within("the end of the forgetful", node.stopped()) => Some(reason),
            _ = another_term => None,
        };
        if let Some(reason) = reason {
            return Forgetful {
                cluster,
                leader,
                name,
                data,
                session,
                token,
                reason,
            };
        }
    }
    panic!("five times another leader was elected meanwhile")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_lost_what_it_acknowledged_stops_and_does_not_start_again() {
    let Forgetful {
        mut cluster,
        leader,
        name: follower,
        data,
        session,
        token,
        reason,
    } = forgetful().await;
    assert!(
        matches!(reason, StopReason::LogReverted { .. }),
        "{reason:?}"
    );
    assert!(
        reason.to_string().contains("joins under a new id"),
        "{reason}"
    );
    assert_eq!(leader.metrics().log_reversions, 1);
    assert_eq!(holder(&leader, "after"), Some((session.id, token)));
    eventually("its directory is free", || {
        matches!(
            ringfence_wal::Fs::lock(&RealFs, &data.join("lock")),
            Ok(ringfence_wal::FsLock::Held(_))
        )
    })
    .await;
    let error = start_error(&cluster, &follower).await;
    assert!(matches!(error, SeatError::Forgot { .. }), "{error:?}");

    // An empty directory is a new member.
    let node_id = leader
        .members()
        .into_iter()
        .find(|member| member.name == follower)
        .unwrap()
        .node_id;
    remove(&leader, node_id).await;
    fs::remove_dir_all(&data).unwrap();
    let node = cluster.start(&follower).await;
    eventually("the new member has all", || {
        holder(&node, "after").is_some()
    })
    .await;
}
