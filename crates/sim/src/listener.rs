//! What the engine tells the checker of a run, at the moment at which it happens.

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_raft::StopReason;

/// How a node ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It was asked to shut down and did.
    Stopped,
    /// Its process or its machine died.
    Crashed,
    /// It stopped on its own.
    ByItself(StopReason),
    /// It did not start; the text says why.
    NotStarted(String),
}

/// Receives what nodes do, while they do it. Nodes are numbered from 0, and keep their number over
/// restarts and wipes. Calls must not block and must not call the node back.
#[expect(
    unused_variables,
    reason = "most listeners care for some of these only"
)]
pub trait Listener: Send + Sync {
    /// `node` applied an entry. `machine` is its state behind it.
    fn applied(
        &self,
        node: usize,
        machine: &StateMachine,
        entry: &Entry,
        outcome: &Outcome,
        events: &[Event],
    ) {
    }

    /// `node` went past an entry that holds no command: a blank one, or members.
    fn skipped(&self, node: usize, machine: &StateMachine, index: u64, term: u64) {}

    /// The state of `node` was replaced by that of a snapshot, its own at a start or a leader's.
    fn installed(&self, node: usize, machine: &StateMachine, index: u64, term: u64) {}

    /// `node` leads in this term, and the term's first entry is applied there.
    fn leads(&self, node: usize, term: u64) {}

    /// `node` led in this term and does not any more, as it knows itself.
    fn leads_no_more(&self, node: usize, term: u64) {}

    /// `node` has started; how often before, 0 for the first time.
    fn started(&self, node: usize, restarts: u64) {}

    /// `node` has ended.
    fn ended(&self, node: usize, how: &End) {}
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaf;

impl Listener for Deaf {}
