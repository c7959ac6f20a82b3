//! The format of a history: one JSON object per line, in the order of writing.
//!
//! A line has one key, which names the kind of the record, and its value holds the fields:
//!
//! ```text
//! {"header":{"version":1,"recorder":"chaos","seed":42,"rate_bound_ppm":10000,"nodes":["n1","n2","n3"]}}
//! {"invoked":{"id":1,"t":1000,"client":1,"op":{"open":{"ttl_ms":2000}}}}
//! {"returned":{"id":1,"t":900000,"outcome":{"opened":{"session":1,"ttl_ms":2000}}}}
//! {"invoked":{"id":2,"t":950000,"client":1,"session":1,"request":1,"op":{"acquire":{"lease":"db"}}}}
//! {"returned":{"id":2,"t":1800000,"outcome":{"granted":{"token":1}}}}
//! {"belief":{"client":1,"session":1,"lease":"db","token":1,"from":1800000,"until":5000000,"why":"released"}}
//! ```
//!
//! All times are nanoseconds of *one* monotonic clock of the recorder that counts suspend, from
//! whatever origin it likes; the true time of a simulation is such a clock. Records may stand in any
//! order, but for the header, which is first, and for `returned`, which follows its `invoked`; the
//! times say what was before what. Fields that are absent are unknown. A field or kind that the
//! reader does not know is an error: what is not looked at was not checked.
//!
//! What each record promises is said at its type; a recorder that cannot promise it leaves the
//! record out. [`Writer`] appends, [`Reader`] streams. A last line that was cut off, as a killed
//! recorder leaves it, is named by [`Reader::cut_off`] and is no error.

mod operation;
mod read;
mod sight;
mod write;

use serde::{Deserialize, Serialize};

pub use operation::{Acquire, Block, Checked, Invoked, Op, Outcome, Queued, Returned};
pub use read::{CutOff, ReadError, Reader};
pub use sight::{
    Admission, Belief, BeliefEnd, Fault, Guard, GuardAct, KeepAlive, NodeSeen, NodeState, Note,
    SessionCause, SessionEnded, WatchCause, WatchEvent, WatchKind, WatchProgress, WatchStarted,
};
pub use write::Writer;

/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 1;
/// The longest line, in bytes, its end included.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// The most records of a history; a checker holds all of them in memory.
pub const RECORDS_MAX: u64 = 50_000_000;
/// The rate error that the contract allows to every clock, in parts per million: 1 %.
pub const RATE_BOUND_PPM: u32 = 10_000;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What this history is; the first line.
    Header(Header),
    /// A client began an operation.
    Invoked(Invoked),
    /// An operation ended, as its client sees it.
    Returned(Returned),
    /// A client learned that its acquire stands in the queue.
    Queued(Queued),
    /// A keep-alive was acknowledged.
    KeepAlive(KeepAlive),
    /// A client learned from the cluster that its session has ended.
    SessionEnded(SessionEnded),
    /// A client believed in a grant for a while.
    Belief(Belief),
    /// A writer came to a guarded store.
    Guard(Guard),
    /// A watch began, or went on after a break.
    WatchStarted(WatchStarted),
    /// A watch reported a grant or of an end.
    WatchEvent(WatchEvent),
    /// A watch reported how far it is.
    WatchProgress(WatchProgress),
    /// A fault was made.
    Fault(Fault),
    /// A node was seen to change.
    Node(NodeSeen),
    /// A remark for people.
    Note(Note),
}

/// The first record of a history: its version, its recorder, and the clocks that it assumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the format; only [`VERSION`] can be read.
    pub version: u32,
    /// What wrote it: `sim`, `chaos`, or any other name.
    pub recorder: String,
    /// The seed from which the run can be repeated, if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How far the rate of any clock that takes part may be from that of the recorder's, in parts
    /// per million: nodes' and clients' clocks alike. Less than a million.
    pub rate_bound_ppm: u32,
    /// The names of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Wall time of the clock's origin in milliseconds since the Unix epoch, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// A remark for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Header {
    /// The header of a history by `recorder` whose clocks keep to the contract.
    #[must_use]
    pub fn new(recorder: &str) -> Self {
        Self {
            version: VERSION,
            recorder: recorder.to_owned(),
            seed: None,
            rate_bound_ppm: RATE_BOUND_PPM,
            nodes: Vec::new(),
            wall_ms: None,
            note: None,
        }
    }
}
