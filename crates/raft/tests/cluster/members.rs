//! Members that come and go: no id is given twice, no change stays half-done, and none leaves the
//! cluster without a live majority.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_core::Millis;
use ringfence_raft::{MembershipError, Node, NotReady, StopReason};

use crate::harness::{Cluster, acquired, eventually, open, propose, remove, weighty, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

fn id(node: &Node) -> u64 {
    node.status().node_id.unwrap()
}

/// Waits until every node that runs knows exactly these voters, and no change is under way.
async fn settled(cluster: &Cluster, voters: &[u64]) {
    let wanted = vec![voters.iter().copied().collect::<BTreeSet<u64>>()];
    eventually("settled voters", || {
        cluster.nodes.values().all(|node| {
            node.voters()
                .is_some_and(|voters| voters.is_settled() && voters.sets == wanted)
        })
    })
    .await;
}

/// Waits until a learner holds the leader's log.
async fn caught_up(cluster: &Cluster, node: &Node) {
    let leader = cluster.nodes[&cluster.leader().await].clone();
    eventually("a learner that has caught up", || {
        let members = leader.members();
        let found = members.iter().find(|member| member.node_id == id(node));
        let matched = found.and_then(|member| member.matched);
        matched.is_some_and(|matched| matched >= leader.status().applied_index)
    })
    .await;
}

fn refused(result: Result<(), MembershipError>) -> String {
    match result {
        Err(MembershipError::Refused { why }) => why,
        other => panic!("{other:?}"),
    }
}

/// Promotes a learner, again and again while it has not caught up.
async fn promoted(leader: &Node, node_id: u64) {
    within("its vote", async {
        while let Err(error) = leader.promote_member(node_id, None, None).await {
            let waits = matches!(error, MembershipError::NotDone { .. });
            assert!(waits, "{error}");
        }
    })
    .await;
}

async fn works(node: &Node, n: u8) {
    let session = open(node, n, Millis::from_secs(60)).await;
    acquired(node, session, 1, &format!("lease/{n}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_right_after_forming_never_takes_the_id_of_a_first_member() {
    for count in [3, 4, 5, 7] {
        let names: Vec<String> = (1..=count).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut cluster = Cluster::formed(&names).await;
        let newcomer = cluster.join("late").await;
        cluster.serving("late").await;
        let late = id(&newcomer);
        assert!(late > 63, "{late} with {count} first members");
        let members = cluster.nodes["n1"].members_of_leader().await.unwrap();
        let ids: Vec<u64> = members.iter().map(|member| member.node_id).collect();
        let first: Vec<u64> = (1..=count).chain([late]).collect();
        assert_eq!(ids, first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_voter_is_not_removed_while_another_is_down() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let dead = cluster.a_follower().await;
    let dead_id = id(&cluster.nodes[&dead]);
    cluster.crash(&dead).await;
    let live = id(&cluster.nodes[&cluster.a_follower().await]);
    let why = within("an answer", async {
        loop {
            // For a moment the dead one is not known to be dead.
            match leader.remove_member(live, None).await {
                Err(MembershipError::NotDone { .. }) => {}
                other => return refused(other),
            }
        }
    })
    .await;
    assert!(why.contains(&dead) && why.contains("--force"), "{why}");
    works(&leader, 1).await;

    remove(&leader, dead_id).await;
    settled(&cluster, &[id(&leader).min(live), id(&leader).max(live)]).await;
    works(&leader, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_died_gets_no_vote_although_it_had_caught_up() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let learner = cluster.join("n4").await;
    caught_up(&cluster, &learner).await;
    cluster.crash("n4").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for replaces in [None, Some(id(&cluster.nodes[&cluster.a_follower().await]))] {
        let why = refused(leader.promote_member(id(&learner), replaces, None).await);
        assert!(why.contains("has not answered"), "{why}");
    }
    settled(&cluster, &[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_stopped_between_its_steps_is_finished_by_the_same_leader() {
    let cluster = Cluster::formed(&NAMES).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let gone = &cluster.nodes[&cluster.a_follower().await];
    let left: Vec<u64> = (1..=3).filter(|n| *n != id(gone)).collect();
    leader.change_voters_by_half(&left).await.unwrap();
    let reason = within("its end", gone.stopped()).await;
    assert_eq!(reason, StopReason::Removed);
    eventually("settled voters", || {
        leader.voters().is_some_and(|voters| voters.is_settled())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_leader_died_between_its_steps_is_finished_by_the_next_one() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let fourth = cluster.join("n4").await;
    caught_up(&cluster, &fourth).await;
    let leader = cluster.leader().await;
    let voters = [1, 2, 3, id(&fourth)];
    let node = cluster.nodes[&leader].clone();
    node.change_voters_by_half(&voters).await.unwrap();
    within("the leader's end", cluster.crash(&leader)).await;
    settled(&cluster, &voters).await;
    let next = cluster.nodes[&cluster.leader().await].clone();
    works(&next, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_no_change_half_done() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let fourth = cluster.join("n4").await;
    caught_up(&cluster, &fourth).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let (caller, new) = (leader.clone(), id(&fourth));
    let asking = tokio::spawn(async move { caller.promote_member(new, None, None).await });
    within("the first step", async {
        while leader.voters().unwrap().sets == [BTreeSet::from([1, 2, 3])] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    asking.abort();
    settled(&cluster, &[1, 2, 3, new]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_given_between_the_steps_of_a_replacement_brings_no_old_voter_back() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let fourth = cluster.join("n4").await;
    let fifth = cluster.join("n5").await;
    caught_up(&cluster, &fourth).await;
    caught_up(&cluster, &fifth).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let gone = cluster.a_first_follower().await;
    let replaced = id(&cluster.nodes[&gone]);
    let mut voters: Vec<u64> = (1..=3).filter(|n| *n != replaced).collect();
    voters.push(id(&fourth));
    leader.change_voters_by_half(&voters).await.unwrap();
    promoted(&leader, id(&fifth)).await;
    voters.push(id(&fifth));
    let removed = cluster.nodes.remove(&gone).unwrap();
    settled(&cluster, &voters).await;
    let reason = within("its end", removed.stopped()).await;
    assert_eq!(reason, StopReason::Removed);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_voters_do_not_become_one_in_a_moment() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.timing.leader_wait = Duration::from_millis(300);
    cluster.start_all().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let others: Vec<u64> = (1..=3).filter(|n| *n != id(&leader)).collect();
    remove(&leader, others[0]).await;
    let early = leader.remove_member(others[1], None).await.unwrap_err();
    assert!(early.to_string().contains("have stood for"), "{early}");
    remove(&leader, others[1]).await;
    assert_eq!(leader.ready(Duration::from_secs(1)), Ok(()), "alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_voter_of_a_settled_cluster_is_ready() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.join_as_voter = true;
    cluster.start_all().await;
    let fourth = cluster.join("n4").await;
    let new = eventually_id(&fourth).await;
    settled(&cluster, &[1, 2, 3, new]).await;
    for (name, node) in &cluster.nodes {
        eventually(&format!("{name} ready"), || {
            node.ready(Duration::from_secs(2)).is_ok()
        })
        .await;
    }
}

async fn eventually_id(node: &Node) -> u64 {
    eventually("an id", || node.status().node_id.is_some()).await;
    id(node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_one_is_ready_for_as_long_as_its_disk_works() {
    const AGE_MAX: Duration = Duration::from_secs(1);
    let mut cluster = Cluster::new(&["n1"]);
    cluster.with_disks();
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    works(&node, 1).await;
    tokio::time::sleep(2 * AGE_MAX).await;
    assert_eq!(node.ready(AGE_MAX), Ok(()));
    assert!(node.age().is_some_and(|age| age < AGE_MAX));

    let session = open(&node, 2, Millis::from_secs(60)).await;
    cluster.disks["n1"].hang();
    let caller = node.clone();
    let waits = tokio::spawn(async move { caller.propose(weighty(session, 1)).await });
    eventually("a disk that is behind", || {
        matches!(node.ready(AGE_MAX), Err(NotReady::DiskBehind { .. }))
    })
    .await;
    cluster.disks["n1"].go_on();
    drop(within("an answer", waits).await.unwrap());
    eventually("readiness", || node.ready(AGE_MAX).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_hands_over_to_those_whose_disks_work() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.flush_lag_max = Duration::from_millis(500);
    cluster.with_disks();
    cluster.start_all().await;
    let hung = cluster.leader().await;
    let session = open(&cluster.nodes[&hung], 1, Millis::from_secs(60)).await;
    cluster.disks[&hung].hang();
    propose(&cluster.nodes[&hung], weighty(session, 1)).await;
    let others = NAMES.iter().filter(|name| **name != hung);
    let others: Vec<Node> = others.map(|name| cluster.nodes[*name].clone()).collect();
    eventually("another leader", || {
        let old = id(&cluster.nodes[&hung]);
        others.iter().all(|node| {
            let leader = node.status().leader;
            leader.is_some_and(|leader| leader.node_id != old)
        })
    })
    .await;
    propose(&others[0], weighty(session, 2)).await;

    cluster.disks[&hung].go_on();
    // It follows again, and its clients are served through it.
    propose(&cluster.nodes[&hung], weighty(session, 3)).await;
}
