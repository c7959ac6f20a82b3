//! What a running node is at the end of a run.

use std::collections::BTreeSet;

use ringfence_raft::{NotReady, Voters};

/// What a running node is at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Which node.
    pub node: usize,
    /// Its id, if it has a seat in a cluster.
    pub id: Option<u64>,
    /// The term that it leads in, if it leads.
    pub leads: Option<u64>,
    /// The ids of the members that it knows, with and without a vote.
    pub members: BTreeSet<u64>,
    /// The voters that it knows; `None` without a seat.
    pub voters: Option<Voters>,
    /// Whether it can serve clients.
    pub ready: Result<(), NotReady>,
    /// The paths of files that no rule names.
    pub unexpected: BTreeSet<String>,
}
