//! What a node remembers of the modes that its state had.

use std::sync::Arc;

use futures_util::stream;
use openraft::storage::RaftStateMachine;
use ringfence_core::{
    AccessChange, Called, Caller, ChangeAccess, ClusterId, Command, Form, Millis, Mode, Principal,
    Settings,
};
use ringfence_history::HistoryFeed;

use super::snapshot_suite::entry;
use crate::store::snapshot_file::SnapshotDir;
use crate::store::state::{State, StateStore};
use crate::types::stop::StopSignal;

const CLUSTER: ClusterId = ClusterId::new([1; 16]);

fn formed(mode: Mode) -> Vec<Command> {
    let form = Form {
        cluster: CLUSTER,
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode,
        quiet_time: Millis(0),
        restored: None,
    };
    vec![
        Command::TermStart { unix_seconds: None },
        Command::Form(form),
    ]
}

/// `local` sets the mode, based on the entry that set it before.
fn set(mode: Mode, based_on: u64) -> Command {
    let command = Command::ChangeAccess(ChangeAccess {
        cluster: CLUSTER,
        based_on,
        changes: vec![AccessChange::SetMode(mode)],
    });
    let caller = Caller {
        principal: Principal::local(),
        token: None,
        node: 1,
    };
    Command::Called(Box::new(Called { caller, command }))
}

/// The state of a node that has just started.
struct Node {
    state: Arc<State>,
    store: StateStore,
    index: u64,
    _dir: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = SnapshotDir::open(dir.path().join("s"), CLUSTER).unwrap();
        let state = Arc::new(State::new(HistoryFeed::off(), StopSignal::new(), None));
        state.open(snapshots, None);
        Self {
            store: StateStore::new(state.clone()),
            state,
            index: 0,
            _dir: dir,
        }
    }

    /// Applies these in one batch: no reader sees what is between them.
    async fn apply(&mut self, commands: &[Command]) -> (Mode, Option<bool>) {
        let entries = (self.index + 1..).zip(commands);
        let entries = entries.map(|(index, command)| Ok((entry(index, command), None)));
        self.store.apply(stream::iter(entries)).await.unwrap();
        self.index += commands.len() as u64;
        (self.state.access_mode(), self.state.mode_was_set())
    }
}

/// Formed with the mode `enforced`, which the third entry takes back.
fn taken_back() -> Vec<Command> {
    let mut commands = formed(Mode::Enforced);
    commands.push(set(Mode::Off, 2));
    commands
}

#[tokio::test]
async fn a_mode_that_is_taken_back_in_the_same_batch_was_set() {
    let mut node = Node::new();
    node.state.caught_up(1);
    let seen = node.apply(&taken_back()).await;
    assert_eq!(seen, (Mode::Off, Some(true)));

    let mut never = Node::new();
    never.state.caught_up(1);
    let seen = never.apply(&formed(Mode::Off)).await;
    assert_eq!(seen, (Mode::Off, Some(false)));
}

/// They are on the disk of the node, or it was away, or it joins: nothing but the start counts.
#[tokio::test]
async fn a_mode_that_was_taken_back_before_the_start_does_not_count() {
    let mut node = Node::new();
    assert_eq!(node.apply(&taken_back()).await, (Mode::Off, None));
    node.state.caught_up(3);
    let later = [set(Mode::Permissive, 3), set(Mode::Off, 4)];
    assert_eq!(node.apply(&[]).await, (Mode::Off, Some(false)));
    assert_eq!(node.apply(&later).await, (Mode::Off, Some(true)));

    // It was in force when the node started.
    let mut in_force = Node::new();
    in_force.apply(&taken_back()).await;
    in_force.state.caught_up(2);
    assert_eq!(in_force.state.mode_was_set(), Some(true));
}

#[tokio::test]
async fn the_mode_of_a_disk_says_nothing_before_the_node_has_caught_up() {
    let mut node = Node::new();
    let held = formed(Mode::Enforced);
    assert_eq!(node.apply(&held).await, (Mode::Enforced, None));
    // A read that comes later than the first one moves nothing.
    node.state.caught_up(3);
    node.state.caught_up(2);
    let seen = node.apply(&[set(Mode::Off, 2)]).await;
    assert_eq!(seen, (Mode::Off, Some(false)));
}

/// A snapshot stands for all entries up to it, and shows the last mode alone.
#[tokio::test]
async fn a_snapshot_counts_as_the_entries_that_it_stands_for() {
    for (commands, was_set) in [(taken_back(), false), (formed(Mode::Enforced), true)] {
        let mut leader = Node::new();
        leader.apply(&commands).await;
        leader.state.prepare_snapshot().await.unwrap();
        let taken = leader.store.get_current_snapshot().await.unwrap().unwrap();
        let mut node = Node::new();
        node.store
            .install_snapshot(&taken.meta, taken.snapshot)
            .await
            .unwrap();
        assert_eq!(node.state.mode_was_set(), None);
        node.state.caught_up(leader.index);
        assert_eq!(node.state.mode_was_set(), Some(was_set));
    }
}

/// What the disk held may be answered from, until the node sees that the cluster took it back.
#[tokio::test]
async fn a_node_holds_the_mode_of_its_disk_until_it_applies_another_one() {
    let mut joined = Node::new();
    joined.state.started();
    joined.apply(&formed(Mode::Enforced)).await;
    assert!(!joined.state.holds_a_mode(), "its disk was empty");

    let mut away = Node::new();
    away.apply(&formed(Mode::Enforced)).await;
    away.state.started();
    assert!(away.state.holds_a_mode());
    away.apply(&[set(Mode::Off, 2)]).await;
    assert!(!away.state.holds_a_mode());
}
