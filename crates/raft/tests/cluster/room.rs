//! Disks without room, and what a cluster makes of them.

use std::time::Duration;

use ringfence_core::{Millis, Mode};
use ringfence_raft::{
    LOG_UNCOMMITTED_BYTES_MIN, MembershipError, Node, NodeConfig, OPERATIONS_WITHOUT_ROOM_MAX,
    ProposeError, Role,
};

use crate::disk::Disk;
use crate::harness::{Cluster, Session, eventually, holder, open, propose, weighty, within};
use crate::rights;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const TTL: Millis = Millis::from_secs(300);
/// A leader without room leads on for three seconds, in case there is some again.
const LONGER_THAN_A_FULL_LEADER_LEADS: Duration = Duration::from_secs(6);

fn small(config: &mut NodeConfig) {
    config.wal_segment_bytes = ringfence_raft::WAL_SEGMENT_BYTES_MIN;
    config.timing.leader_wait = Duration::from_millis(500);
    // These tests tell a hand-over by the term. On a busy machine an election of its own would change
    // the term as well. With longer ones a dead member would count as live for more than a second.
    config.timing.election_min = Duration::from_millis(400);
    config.timing.election_max = Duration::from_millis(500);
}

/// A volume that holds everything: no snapshot helps.
fn fill(disk: &Disk, full: bool) {
    disk.fill("wal", full);
    disk.fill("snapshots", full);
}

async fn three() -> (Cluster, Node, Session) {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = small;
    cluster.with_disks();
    cluster.start_all().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let session = open(&leader, 1, TTL).await;
    (cluster, leader, session)
}

/// An operator sees it in one place, whichever node is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_knows_whose_disk_is_full_and_who_was_not_heard_for_how_long() {
    let (mut cluster, leader, session) = three().await;
    let full = cluster.a_follower().await;
    fill(&cluster.disks[&full], true);
    let follower = cluster.nodes[&full].clone();
    within("a full follower", async {
        for n in 1.. {
            if follower.metrics().wal_no_room {
                return;
            }
            propose(&leader, weighty(session, n)).await;
        }
    })
    .await;
    let names = [cluster.leader().await, full.clone()];
    let gone = NAMES
        .into_iter()
        .find(|name| !names.contains(&(*name).to_owned()));
    let gone = gone.unwrap();
    cluster.crash(gone).await;

    let silent = Duration::from_secs(1);
    let members = within("what the leader knows", async {
        loop {
            let members = follower.members_of_leader().await.unwrap_or_default();
            let lost = members.iter().find(|member| member.name == gone);
            if lost.is_some_and(|lost| lost.heard > Some(silent)) {
                return members;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    for member in members {
        let known = member.condition.unwrap();
        assert_eq!(
            &*known.version,
            env!("CARGO_PKG_VERSION"),
            "{}",
            member.name
        );
        assert_eq!(known.no_room, member.name == full, "{}", member.name);
        assert_eq!(
            member.heard > Some(silent),
            member.name == gone,
            "{}",
            member.name
        );
        assert!(!known.last_sync.is_zero(), "{}", member.name);
    }
    assert!(
        cluster.nodes[&full]
            .members()
            .iter()
            .all(|member| member.condition.is_none())
    );

    fill(&cluster.disks[&full], false);
    within("room again, and known", async {
        loop {
            let members = leader.members_of_leader().await.unwrap();
            let full = members.iter().find(|member| member.name == full);
            if full.is_some_and(|full| full.condition.as_ref().is_some_and(|known| !known.no_room))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Proposes until this leader says that it has no room.
async fn fill_up(leader: &Node, session: Session) {
    within("a full disk", async {
        for n in 1.. {
            if leader.metrics().wal_no_room {
                return;
            }
            let proposed = leader.propose(weighty(session, n));
            tokio::time::timeout(Duration::from_millis(200), proposed)
                .await
                .ok();
        }
    })
    .await;
}

/// How many of so many reads, one in 500 ms, succeed on any node.
async fn reads(cluster: &Cluster, count: u32) -> u32 {
    let mut good = 0;
    for _ in 0..count {
        let mut any = false;
        for node in cluster.nodes.values() {
            let read = tokio::time::timeout(Duration::from_millis(600), node.read_barrier()).await;
            any |= matches!(read, Ok(Ok(())));
        }
        good += u32::from(any);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    good
}

/// All volumes have one size and hold one log: they are full at one time.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_disks_are_full_goes_on_reading_also_under_the_next_leader() {
    let (mut cluster, leader, session) = three().await;
    for disk in cluster.disks.values() {
        fill(disk, true);
    }
    // All write the same, so all are full with the same entry; here past a leader that refuses.
    let full = || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.metrics().wal_no_room)
    };
    within("full disks", async {
        for n in 1.. {
            if full() {
                return;
            }
            let command = ringfence_proto::record::encode_command(&weighty(session, n));
            let logged = leader.log_unchecked(command);
            tokio::time::timeout(Duration::from_millis(200), logged)
                .await
                .ok();
        }
    })
    .await;
    let term = leader.status().term;
    tokio::time::sleep(LONGER_THAN_A_FULL_LEADER_LEADS).await;
    assert_eq!(reads(&cluster, 3).await, 3, "nobody else would lead better");
    assert_eq!(
        leader.status().term,
        term,
        "no change of leader for nothing"
    );

    cluster.crash(&cluster.leader().await).await;
    let next = cluster.leader().await;
    assert_eq!(
        reads(&cluster, 3).await,
        3,
        "the first entries of its term went in"
    );
    assert!(cluster.nodes[&next].metrics().wal_no_room);

    for disk in cluster.disks.values() {
        fill(disk, false);
    }
    eventually("room again", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| !node.metrics().wal_no_room)
    })
    .await;
    propose(&cluster.nodes[&next], weighty(session, 1_000)).await;
}

/// The others of three: one is gone, the other has room. Only this leader's room lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_room_that_a_majority_needs_leads_on() {
    let (mut cluster, leader, session) = three().await;
    let name = cluster.leader().await;
    let gone = cluster.a_follower().await;
    cluster.crash(&gone).await;
    fill(&cluster.disks[&name], true);
    fill_up(&leader, session).await;
    let term = leader.status().term;
    tokio::time::sleep(LONGER_THAN_A_FULL_LEADER_LEADS).await;
    assert_eq!(reads(&cluster, 3).await, 3);
    assert_eq!(leader.status().term, term);
}

/// Both others have room.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_room_hands_over_to_one_that_has_some() {
    let (cluster, leader, session) = three().await;
    let name = cluster.leader().await;
    fill(&cluster.disks[&name], true);
    fill_up(&leader, session).await;
    eventually("another leader", || leader.status().role != Role::Leader).await;
    let next = cluster.leader().await;
    assert_ne!(next, name);
    propose(&cluster.nodes[&next], weighty(session, 1_000)).await;
}

/// The log is asked first whether the caller may, once rights are on. Without a command the leader would
/// hand over only after three seconds.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_hands_over_from_a_full_leader_while_rights_are_on() {
    let (cluster, leader, session) = three().await;
    rights::set(&leader, Mode::Permissive).await;
    let name = cluster.leader().await;
    let to = cluster.nodes[&cluster.a_follower().await].status().node_id;
    fill(&cluster.disks[&name], true);
    fill_up(&leader, session).await;
    let handed = within("an answer", leader.transfer_leader(to, None)).await;
    assert_eq!(handed.unwrap(), to.unwrap());
    let next = cluster.leader().await;
    propose(&cluster.nodes[&next], weighty(session, 1_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_log_without_room_is_bounded() {
    let (mut cluster, leader, session) = three().await;
    rights::set(&leader, Mode::Permissive).await;
    let name = cluster.leader().await;
    let gone = cluster.a_follower().await;
    cluster.crash(&gone).await;
    fill(&cluster.disks[&name], true);
    fill_up(&leader, session).await;
    let nobody = Some(99);
    for _ in 0..OPERATIONS_WITHOUT_ROOM_MAX {
        let judged = within("an answer", leader.transfer_leader(nobody, None)).await;
        assert!(
            matches!(judged, Err(MembershipError::Refused { .. })),
            "{judged:?}"
        );
    }
    let refused = within("an answer", leader.transfer_leader(nobody, None)).await;
    let Err(MembershipError::NotDone { why }) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("as many as a term sets room aside"), "{why}");

    fill(&cluster.disks[&name], false);
    eventually("room again", || !leader.metrics().wal_no_room).await;
    let judged = within("an answer", leader.transfer_leader(nobody, None)).await;
    assert!(
        matches!(judged, Err(MembershipError::Refused { .. })),
        "{judged:?}"
    );
}

/// Many callers at once, who ask again after a while, so many times.
async fn burst(leader: &Node, session: Session, calls: u64, rounds: u64) {
    for round in 0..rounds {
        let calls = (1..=calls).map(|at| {
            let proposed = leader.propose(weighty(session, 1 + round * calls + at));
            tokio::time::timeout(Duration::from_millis(300), proposed)
        });
        futures_util::future::join_all(calls).await;
    }
}

/// Of three with these segments, one is gone, and the follower that is left has a full disk.
async fn leader_of_a_full_follower(adjust: fn(&mut NodeConfig)) -> (Cluster, Node, Session) {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = adjust;
    cluster.with_disks();
    cluster.start_all().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let session = open(&leader, 1, TTL).await;
    let gone = cluster.a_follower().await;
    cluster.crash(&gone).await;
    fill(&cluster.disks[&cluster.a_follower().await], true);
    (cluster, leader, session)
}

async fn refuses_for_lack_of_room(leader: &Node, session: Session) {
    match within("an answer", leader.propose(weighty(session, 1_000_000))).await {
        Err(ProposeError::NotDone { why, .. }) => {
            assert!(why.contains("no majority can do without"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

/// What its leader sends at once is more than the follower has prepared.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_follower_confirms_its_leader_whatever_was_sent_to_it() {
    let (cluster, leader, session) = leader_of_a_full_follower(small).await;
    burst(&leader, session, 200, 4).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let status = leader.status();
    assert!(status.last_log_index > status.applied_index, "{status:?}");
    assert_eq!(reads(&cluster, 5).await, 5);
    refuses_for_lack_of_room(&leader, session).await;
}

/// The first entry of its next term stands behind all that the follower did not take.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_of_a_full_follower_reads_also_after_its_restart() {
    let (mut cluster, leader, session) = leader_of_a_full_follower(|config| {
        small(config);
        config.wal_segment_bytes = 4 << 20;
    })
    .await;
    burst(&leader, session, 500, 40).await;
    refuses_for_lack_of_room(&leader, session).await;

    // If it has all of the log, it may lead next.
    let full = cluster.a_follower().await;
    let name = cluster.leader().await;
    cluster.crash(&name).await;
    let leader = cluster.start(&name).await;
    eventually("a term of its own", || leader.status().serving).await;
    assert_eq!(reads(&cluster, 5).await, 5);
    assert!(cluster.nodes[&full].metrics().wal_no_room);

    fill(&cluster.disks[&full], false);
    eventually("room again", || !cluster.nodes[&full].metrics().wal_no_room).await;
    propose(&leader, weighty(session, 2_000_000)).await;
}

/// The followers take no entries, and answer heartbeats.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_commit_takes_a_limited_number_of_entries() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        small(config);
        config.log_unflushed_max = 1 << 20;
    };
    cluster.with_disks();
    cluster.start_all().await;
    let name = cluster.leader().await;
    let leader = cluster.nodes[&name].clone();
    let session = open(&leader, 1, TTL).await;
    for (other, disk) in &cluster.disks {
        if *other != name {
            fill(disk, true);
        }
    }
    let waiting = || {
        let status = leader.status();
        status.last_log_index.saturating_sub(status.applied_index)
    };
    // Each takes a little more than 1 KB, and what a call of many sends at once is all taken.
    let limit = LOG_UNCOMMITTED_BYTES_MIN / 1_000;
    for _ in 0..20 {
        burst(&leader, session, 1_000, 1).await;
        let waiting = waiting();
        assert!(waiting < limit + 1_000, "{waiting} wait to be committed");
    }
    refuses_for_lack_of_room(&leader, session).await;
}

/// Only the log's folder is full; a snapshot would let the log be purged.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_room_is_shortened_by_a_snapshot() {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| {
        small(config);
        config.snapshot_log_bytes = 64 << 20;
    };
    cluster.with_disks();
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, TTL).await;
    for n in 1..=500 {
        propose(&node, weighty(session, n)).await;
    }
    cluster.disks["n1"].fill("wal", true);
    fill_up(&node, session).await;
    assert!(holder(&node, "lease/1").is_some());
    eventually("room in the log", || !node.metrics().wal_no_room).await;
    let figures = node.metrics();
    assert!(
        figures.snapshots_built > 0 && figures.purged_index > 400,
        "{figures:?}"
    );
    propose(&node, weighty(session, 1_000)).await;
}
