//! What can happen to a node, one thing at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_sim::listener::{End, Listener};
use ringfence_sim::node::Crash;
use ringfence_sim::runner;
use ringfence_sim::setup::Setup;
use ringfence_sim::trace::Trace;
use ringfence_sim::world::{Lost, World};

use super::harness::{Caller, run};

const SOON: Duration = Duration::from_secs(15);

/// Waits until all of these nodes have applied what this one has.
async fn caught_up(world: &World, nodes: &[usize], like: usize) {
    let applied = |index: usize| {
        let node = world.node(index);
        let handle = node.handle()?;
        Some(node.machine().visit(|| handle.status().applied_index))
    };
    let wanted = applied(like);
    let until = world.now() + SOON;
    while nodes.iter().any(|node| applied(*node) < wanted) {
        assert!(world.now() < until, "{nodes:?} do not catch up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A follower of this leader.
fn follower(leader: usize) -> usize {
    (leader + 1) % 3
}

#[test]
fn a_leader_that_only_hears_or_only_speaks_is_replaced_or_steps_down() {
    for speaks in [true, false] {
        let report = run(3, Setup::default(), |world: World| async move {
            let leader = world.form().await;
            let caller = Caller::new(&world, 1);
            let session = caller.open().await;
            let first = caller.acquire(session, 1, "db").await;
            let one = world.node(leader).machine().id();
            for node in world.nodes() {
                let other = node.machine().id();
                if other != one && speaks {
                    world.net().cut(other, one);
                } else if other != one {
                    world.net().cut(one, other);
                }
            }
            let second = caller.acquire(session, 2, "cron").await;
            assert!(second > first);
            assert!(world.now() < Duration::from_secs(30));
        });
        assert!(report.simulated > Duration::ZERO);
    }
}

#[test]
fn a_paused_leader_finds_another_when_it_wakes() {
    run(5, Setup::default(), |world: World| async move {
        let leader = world.form().await;
        world.node(leader).machine().pause();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let caller = Caller::new(&world, 1);
        let session = caller.open().await;
        caller.acquire(session, 1, "db").await;
        let other = world.leader().unwrap();
        world.node(leader).machine().resume();
        caught_up(&world, &[leader], other).await;
        assert_eq!(world.leader(), Some(other));
    });
}

#[test]
fn a_wiped_member_comes_back_as_another_and_takes_its_own_place() {
    let setup = Setup {
        snapshot_log_bytes: 2 << 10,
        snapshot_log_keep: 5,
        ..Setup::default()
    };
    run(9, setup, |world: World| async move {
        let leader = world.form().await;
        let caller = Caller::new(&world, 1);
        let session = caller.open().await;
        for number in 1..=40 {
            caller.acquire(session, number, &format!("l{number}")).await;
        }
        let wiped = follower(leader);
        world.node(wiped).wipe();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.node(wiped).start().await.unwrap();
        let until = world.now() + Duration::from_secs(30);
        let name = world.node(wiped).machine().name().to_owned();
        loop {
            let found = world.call(
                &caller.machine,
                leader,
                |node| async move { node.members() },
            );
            let members = found.await.unwrap();
            let same: Vec<_> = members.iter().filter(|one| one.name == name).collect();
            if let [only] = same.as_slice()
                && only.voter
            {
                break;
            }
            assert!(world.now() < until, "{members:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        caught_up(&world, &[wiped], leader).await;
    });
}

#[test]
fn members_come_and_go() {
    run(12, Setup::default(), |world: World| async move {
        let leader = world.form().await;
        let caller = Caller::new(&world, 1);
        let session = caller.open().await;
        caller.acquire(session, 1, "db").await;
        let fourth = world.add_node();
        fourth.start().await.unwrap();
        let until = world.now() + SOON;
        let id = loop {
            let status = fourth
                .handle()
                .map(|node| fourth.machine().visit(|| node.status()));
            if let Some(id) = status.and_then(|status| status.node_id) {
                break id;
            }
            assert!(world.now() < until, "it is not taken in");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let changed = world.call(&caller.machine, leader, move |node| async move {
            let gone = node
                .members()
                .iter()
                .find(|one| one.node_id != id && !one.leader)
                .unwrap()
                .node_id;
            loop {
                if node.promote_member(id, None, None).await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            node.remove_member(gone, None).await.map(|()| gone)
        });
        changed.await.unwrap().unwrap();
        caller.acquire(session, 2, "cron").await;
        caught_up(&world, &[fourth.index()], leader).await;
    });
}

/// Notes how nodes end.
#[derive(Default)]
struct Ends(Mutex<Vec<(usize, End)>>);

impl Listener for Ends {
    fn applied(&self, _: usize, _: &StateMachine, _: &Entry, _: &Outcome, _: &[Event]) {}

    fn ended(&self, node: usize, how: &End) {
        self.0.lock().unwrap().push((node, how.clone()));
    }
}

#[test]
fn a_node_whose_disk_fails_stops_by_itself_and_can_be_started_again() {
    let ends = Arc::new(Ends::default());
    let scenario = |world: World| async move {
        let leader = world.form().await;
        let one = world.node(follower(leader));
        one.machine().disk().fail_next_sync();
        let caller = Caller::new(&world, 1);
        let session = caller.open().await;
        caller.acquire(session, 1, "db").await;
        let until = world.now() + SOON;
        while one.is_running() {
            assert!(world.now() < until, "it goes on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        one.start().await.unwrap();
        caught_up(&world, &[one.index()], leader).await;
        one.index()
    };
    let report = runner::run(
        4,
        Setup::default(),
        ends.clone(),
        Trace::new(false),
        scenario,
    );
    let ends = ends.0.lock().unwrap();
    assert!(
        matches!(ends.as_slice(), [(node, End::ByItself(_))] if *node == report.value),
        "{ends:?}"
    );
}

#[test]
fn all_disks_can_be_set_back_together() {
    run(6, Setup::default(), |world: World| async move {
        world.form().await;
        let caller = Caller::new(&world, 1);
        let session = caller.open().await;
        let copies: Vec<usize> = world
            .nodes()
            .iter()
            .map(|node| node.machine().disk().keep_copy())
            .collect();
        let first = caller.acquire(session, 1, "db").await;
        for (node, copy) in world.nodes().iter().zip(copies) {
            assert!(node.roll_back(copy));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        for node in world.nodes() {
            node.start().await.unwrap();
        }
        let again = caller.acquire(session, 1, "db").await;
        assert!(again > first, "{again} is not above {first}");
    });
}

#[test]
fn a_call_to_a_dead_node_is_known_to_have_no_effect() {
    run(8, Setup::default(), |world: World| async move {
        world.form().await;
        let client = world.machine("client");
        world.node(1).crash(Crash::Kill);
        let lost = world
            .call(&client, 1, |node| async move { node.status() })
            .await;
        assert_eq!(lost.err(), Some(Lost::NotThere));
    });
}
