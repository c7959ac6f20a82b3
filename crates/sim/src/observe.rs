//! What a run shows: the stream of observations that properties are checked over.
//!
//! All times are true virtual time since the run began; no clock of any machine is involved. What
//! clients asked and received stands here in the words of the history format, so that a run can be
//! handed to the black-box checker as it is.

mod cases;
mod counts;
mod recorder;
mod remains;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringfence_check::history;
use ringfence_core::{Entry, Event, Outcome, Principal};
use ringfence_raft::Incarnation;
use ringfence_testkit::view::View;

use crate::faults::Fault;
use crate::listener::End;

pub use counts::Counts;
pub use recorder::Recorder;
pub use remains::Remains;

/// Virtual time since the run began.
pub type At = Duration;

/// Something that happened, as one who sees everything tells it.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A node applied an entry.
    Applied(Arc<Applied>),
    /// A node went past an entry without a command.
    Skipped {
        /// Which node.
        node: usize,
        /// The entry's index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// A node's state was replaced by that of a snapshot.
    Installed {
        /// Which node.
        node: usize,
        /// The newest entry that the state holds.
        index: u64,
        /// Its term.
        term: u64,
        /// The state in short.
        digest: u64,
    },
    /// A node leads, and the first entry of its term is applied there.
    Leads {
        /// Which node.
        node: usize,
        /// In which term.
        term: u64,
    },
    /// A node knows that it lost leadership.
    LeadsNoMore {
        /// Which node.
        node: usize,
        /// In which term it led.
        term: u64,
    },
    /// A node has started.
    Started {
        /// Which node.
        node: usize,
    },
    /// A node has ended.
    Ended {
        /// Which node.
        node: usize,
        /// Whether it was ended, or ended on its own.
        how: End,
    },
    /// A node has a seat in the cluster.
    Seat {
        /// Which node.
        node: usize,
        /// The number of its data directory.
        directory: u64,
        /// Its id, as it knows itself.
        id: u64,
    },
    /// A node lists a member.
    Listed {
        /// Which node.
        by: usize,
        /// The member's id.
        id: u64,
        /// The member's incarnation.
        incarnation: Incarnation,
    },
    /// The run is over, and these nodes run.
    Remains(Vec<Remains>),
    /// All disks were set back to an older copy, or wiped: what was acknowledged since is gone, and
    /// only tokens and guards stand for what was.
    RolledBack,
    /// The same, and the cluster that begins now is restored from a backup of the one before it, which
    /// is over: after its quiet time it grants nothing that a client still believes in.
    Restored,
    /// A client gave a try of a request to its stream. A try that follows has a number of its own.
    Asked(history::Invoked),
    /// A node took a try in.
    Received {
        /// The try.
        id: u64,
        /// Which node.
        node: usize,
    },
    /// A try was answered.
    Answered(history::Returned),
    /// No client hears of a try any more: its stream is gone.
    Abandoned {
        /// The try.
        id: u64,
    },
    /// A keep-alive was given to the stream.
    KeepAliveAsked {
        /// The try, numbered as those of other requests.
        id: u64,
        /// Who sent it.
        client: u32,
        /// For which sessions.
        sessions: Vec<u64>,
    },
    /// A keep-alive was answered, and this is what it said of one session.
    KeptAlive {
        /// The try.
        id: u64,
        /// Who is notified.
        client: u32,
        /// Which session.
        session: u64,
        /// What became of it.
        what: Kept,
    },
    /// A client begins to believe that it holds a lease.
    BeliefBegan(Belief),
    /// A client believes no more. It may learn late, when a process slept; `until` says since
    /// when every look at the grant says no.
    BeliefEnded {
        /// What was believed.
        belief: Belief,
        /// Since when not.
        until: At,
        /// The cause as the history format has it.
        why: history::BeliefEnd,
    },
    /// A client looked whether it holds a grant.
    Looked {
        /// Which grant.
        belief: Belief,
        /// What the look said.
        held: bool,
    },
    /// Who a client is, before anything of it.
    Caller {
        /// Which client.
        client: u32,
        /// What it proves.
        principal: Principal,
    },
    /// A request in the name of another principal's session was answered, and not refused.
    ThiefServed {
        /// Who asked.
        client: u32,
        /// The answer.
        answer: String,
    },
    /// A case that is to occur came about.
    Case(&'static str),
    /// A process that runs client-go's election was answered that it holds the lease.
    ElectorHolds {
        /// Which process.
        elector: u32,
        /// The token of the answer.
        token: u64,
    },
    /// Its loop has ended, or the process has: it has lost leadership, and knows it.
    ElectorEnded {
        /// Which process.
        elector: u32,
    },
    /// A watch of Lease objects went on, at some node.
    ObjectsWatched {
        /// The version that it had come to.
        from: u64,
        /// The version of that node.
        to: u64,
        /// What it shows from there on.
        shown: String,
        /// What the node lists.
        listed: String,
    },
    /// A client process came up, and may open sessions.
    ClientUp {
        /// Which client.
        client: u32,
    },
    /// A client process is gone: killed, or its work is done and it has closed what it had.
    ClientGone {
        /// Which client.
        client: u32,
    },
    /// A writer came to a guarded store. Of one store these are in the order of its commits.
    Guard(Visit),
    /// A lease that was to be sealed is reported held.
    Sealed(Sealed),
    /// A guarded store was set back to an older copy, and serves visitors again.
    StoreRestored(StoreRestored),
    /// A watch began, or went on behind what it received.
    WatchStarted(history::WatchStarted),
    /// A watch reported a grant or of an end.
    WatchEvent(history::WatchEvent),
    /// A watch reported that everything up to an index was reported.
    WatchProgress(history::WatchProgress),
    /// A watch that was to go on was refused: the log never had the position that it offered.
    WatchRefused {
        /// Which watch.
        watcher: u32,
        /// The position: an index, and a place among the events there.
        after: (u64, u32),
        /// Up to this index the log was applied where it was refused.
        newest: u64,
    },
    /// A fault begins.
    FaultBegan {
        /// Its place in the plan.
        at: usize,
        /// The fault with its node and its extent.
        fault: Fault,
    },
    /// A fault is over.
    FaultEnded {
        /// Its place in the plan.
        at: usize,
    },
    /// A fault that needs more than its time came about.
    Took {
        /// Its row.
        row: &'static str,
    },
    /// A sync of a node's disk is going to fail.
    DiskFails {
        /// Which node.
        node: usize,
    },
    /// A node's disk keeps nothing more for a long time.
    DiskHangs {
        /// Which node.
        node: usize,
    },
    /// It does again.
    DiskGoesOn {
        /// Which node.
        node: usize,
    },
    /// A node began to work although its log was taken from it.
    StartedWithoutLog {
        /// Which node.
        node: usize,
    },
    /// The removal of a voter has begun, and no operator had said that the others need not live.
    VoterRemoved {
        /// How many voters there are now.
        left: usize,
        /// How many of them have been down for long.
        dead: usize,
    },
    /// The run enters its next phase.
    Phase(Phase),
}

/// An entry applied by a node.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Which node.
    pub node: usize,
    /// Whether no node had applied this index before: the first applications are the log.
    pub first: bool,
    /// The entry.
    pub entry: Entry,
    /// What was answered.
    pub outcome: Outcome,
    /// What changed.
    pub events: Vec<Event>,
    /// The state behind it in short; not of every entry.
    pub digest: Option<u64>,
    /// The state behind it, of first applications.
    pub after: Option<Arc<View>>,
}

/// A client's belief in a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Belief {
    /// Who believes.
    pub client: u32,
    /// Its session.
    pub session: u64,
    /// The lease.
    pub lease: String,
    /// The token.
    pub token: u64,
}

/// What a keep-alive brought a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was kept alive.
    Alive,
    /// It has ended.
    Ended,
    /// The answer does not say.
    Untold,
    /// The keep-alive was not done.
    NotDone,
    /// It lives on, and is not for who asked.
    Refused,
}

/// A visit to a guarded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Which store.
    pub store: String,
    /// The lease that its guard is bound to.
    pub lease: String,
    /// Who came.
    pub client: u32,
    /// The lease of the fence that was shown.
    pub shown: String,
    /// Its token.
    pub token: u64,
    /// What was to be done.
    pub act: Act,
    /// Whether it was let in; otherwise the mark that refused it, or none if the fence was another
    /// lease's.
    pub admitted: Result<(), Option<u64>>,
}

/// A lease that was to be sealed, at the moment at which it is reported held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Who holds it.
    pub client: u32,
    /// The lease.
    pub lease: String,
    /// The token.
    pub token: u64,
    /// The stores that it was to be sealed at.
    pub stores: Vec<String>,
    /// Those of them that are said to be unsealed.
    pub unsealed: Vec<String>,
}

/// A guarded store that was set back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRestored {
    /// Which store.
    pub store: String,
    /// Its mark now; 0 if it has none.
    pub mark: u64,
    /// The version of its data now.
    pub version: u64,
}

/// What a visitor of a guarded store wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To raise the mark.
    Advance,
    /// To write a new version of what it has read.
    Write {
        /// The version that it has read.
        read: u64,
        /// The version that it writes.
        wrote: u64,
    },
}

/// The parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Faults come and go.
    Safety,
    /// All faults are over: the service has to come back.
    Liveness,
    /// No client lives any more: every session has to end.
    Quiet,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its id in the contract.
    pub id: &'static str,
    /// What was seen.
    pub why: String,
}

impl Violation {
    /// The promise `id` was broken.
    #[must_use]
    pub fn of(id: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { id, why }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.id, self.why)
    }
}

/// How many observations are kept to be shown beside a violation.
const KEPT: usize = 60;

/// The newest observations, for people.
#[derive(Debug, Default)]
pub struct Newest(VecDeque<(At, Observation)>);

impl Newest {
    /// Takes one more.
    pub fn push(&mut self, at: At, observation: &Observation) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((at, observation.clone()));
    }
}

impl fmt::Display for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(at, seen)| writeln!(f, "{:>12.6} {}", at.as_secs_f64(), Line(seen)))
    }
}

/// An observation in one line.
pub struct Line<'a>(pub &'a Observation);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Observation::Applied(applied) => {
                let Applied { node, entry, .. } = &**applied;
                let first = if applied.first { "" } else { " too" };
                write!(
                    f,
                    "n{node} applied{first} {}/{} at {} {:?} -> {:?}",
                    entry.term, entry.index, entry.time, entry.command, applied.outcome
                )?;
                applied
                    .events
                    .iter()
                    .try_for_each(|event| write!(f, " {event:?}"))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
