//! The replicated state machine.
use alloc::vec::Vec;
use crate::command::Entry;
use crate::event::Event;
use crate::id::*;
use crate::name::LeaseName;
use crate::outcome::*;
use crate::query::*;
use crate::settings::Settings;
use crate::snapshot::*;
use crate::time::*;
/// The state.
#[derive(Clone, Debug, Default)]
pub struct StateMachine {}
#[expect(missing_docs, unused_variables, clippy::todo)]
impl StateMachine {
    pub fn new() -> Self { todo!() }
    /// Applies the next entry; events are appended to `events`.
    pub fn apply(&mut self, entry: &Entry, events: &mut Vec<Event>) -> Outcome { todo!() }
    /// Tells the machine of an entry that is none of its business (blank, membership).
    pub fn skip(&mut self, index: u64) { todo!() }
    /// The next cluster time at which something is due; at or before `time()`: at once.
    pub fn next_deadline(&self) -> Option<ClusterTime> { todo!() }
    pub fn time(&self) -> ClusterTime { todo!() }
    pub fn index(&self) -> u64 { todo!() }
    /// The newest term that was opened by a `TermStart`.
    pub fn term(&self) -> u64 { todo!() }
    pub fn cluster(&self) -> Option<ClusterId> { todo!() }
    pub fn token_floor(&self) -> Option<u64> { todo!() }
    pub fn settings(&self) -> &Settings { todo!() }
    pub fn settings_set_at(&self) -> u64 { todo!() }
    pub fn summary(&self) -> Summary { todo!() }
    pub fn get(&self, name: &LeaseName) -> Option<LeaseView> { todo!() }
    /// Names that begin with `prefix`, behind `after`, in order.
    pub fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> impl Iterator<Item = LeaseView> + 'a { core::iter::empty() }
    pub fn check(&self, name: &LeaseName, token: FencingToken) -> Verdict { todo!() }
    pub fn session(&self, session: SessionId) -> Option<SessionView> { todo!() }
    /// Sessions behind `after` in the order of their numbers, without their leases.
    pub fn sessions(&self, after: Option<SessionId>) -> impl Iterator<Item = SessionView> + '_ { core::iter::empty() }
    /// Whether the secret is the session's: `SessionExpired`, `WrongSecret` or fine.
    pub fn authenticate(&self, session: SessionId, secret: &Secret) -> Result<(), Rejection> { todo!() }
    /// How the request of a session stands now; `None` if it is not remembered.
    pub fn standing(&self, session: SessionId, number: RequestNumber) -> Option<Acquired> { todo!() }
    /// Floors of names that begin with `prefix`.
    pub fn floors<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (LeaseName, FencingToken)> + 'a { core::iter::empty() }
    /// The whole state as records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ { core::iter::empty() }
    /// The state that these records describe.
    pub fn restore(records: impl IntoIterator<Item = Record>) -> Result<Self, BadSnapshot> { todo!() }
}
