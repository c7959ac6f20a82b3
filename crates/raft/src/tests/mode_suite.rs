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

/// A node whose disk held a log up to `held`.
struct Node {
    state: Arc<State>,
    store: StateStore,
    index: u64,
    _dir: tempfile::TempDir,
}

impl Node {
    fn new(held: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = SnapshotDir::open(dir.path().join("s"), CLUSTER).unwrap();
        let state = Arc::new(State::new(HistoryFeed::off(), StopSignal::new(), None));
        state.open(snapshots, None, held);
        Self {
            store: StateStore::new(state.clone()),
            state,
            index: 0,
            _dir: dir,
        }
    }

    /// Applies these in one batch: no reader sees what is between them.
    async fn apply(&mut self, commands: &[Command]) -> (Mode, bool) {
        let entries = (self.index + 1..).zip(commands);
        let entries = entries.map(|(index, command)| Ok((entry(index, command), None)));
        self.store.apply(stream::iter(entries)).await.unwrap();
        self.index += commands.len() as u64;
        (self.state.access_mode(), self.state.mode_was_set())
    }
}

#[tokio::test]
async fn a_mode_that_is_taken_back_in_the_same_batch_was_set() {
    let mut node = Node::new(0);
    let mut commands = formed(Mode::Permissive);
    commands.push(set(Mode::Off, 2));
    assert_eq!(node.apply(&commands).await, (Mode::Off, true));

    let mut never = Node::new(0);
    assert_eq!(never.apply(&formed(Mode::Off)).await, (Mode::Off, false));
}

#[tokio::test]
async fn a_mode_that_was_taken_back_before_the_start_does_not_count() {
    let mut commands = formed(Mode::Enforced);
    commands.push(set(Mode::Off, 2));
    let mut node = Node::new(3);
    assert_eq!(node.apply(&commands).await, (Mode::Off, false));
    let later = [set(Mode::Permissive, 3), set(Mode::Off, 4)];
    assert_eq!(node.apply(&later).await, (Mode::Off, true));

    // It was in force when the node started.
    let mut in_force = Node::new(2);
    assert_eq!(in_force.apply(&commands).await, (Mode::Off, true));
}
