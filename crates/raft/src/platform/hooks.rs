//! What tests put in the place of the real thing, and how they look on.

use std::fmt;
use std::sync::Arc;

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_wal::{Fs, RealFs};

use crate::platform::clock;

/// The parts of the outside world that a test may replace.
#[derive(Clone)]
pub struct Hooks {
    /// Where the node keeps its files, but for the history.
    pub files: Arc<dyn Fs>,
    /// The wall clock that is asked whether a term may raise the tokens, in milliseconds since
    /// 1970.
    pub wall_millis: fn() -> u64,
    /// The observer of what a node does.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Synchronous observer of a node. Calls must not block, nor call the node back.
pub trait Observer: Send + Sync {
    /// An entry was applied; `machine` is the state behind it.
    fn applied(&self, machine: &StateMachine, entry: &Entry, outcome: &Outcome, events: &[Event]);
    /// An entry without a command went past: a blank one, or members.
    fn skipped(&self, machine: &StateMachine, index: u64, term: u64);
    /// The state was replaced by that of a snapshot.
    fn installed(&self, machine: &StateMachine, index: u64, term: u64);
    /// The node leads, and the term's first entry is applied.
    fn leads(&self, term: u64);
    /// It knows that it leads in this term no more.
    fn leads_no_more(&self, term: u64);
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            files: Arc::new(RealFs),
            wall_millis: || clock::wall().0,
            observer: None,
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
