//! What a node tells of itself.

use ringfence_core::ClusterId;

use crate::types::reply::LeaderHint;

/// What a node is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It belongs to no cluster yet.
    Forming,
    /// It follows the log and has no vote.
    Learner,
    /// It follows a leader, or waits for one.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It was elected; see [`Status::serving`] for whether its term is open.
    Leader,
}

/// What a node knows of itself and its cluster, without asking others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The cluster; `None` until it is formed or joined.
    pub cluster: Option<ClusterId>,
    /// This node's id there.
    pub node_id: Option<u64>,
    /// The name that this node was started with.
    pub name: String,
    /// What it is at present.
    pub role: Role,
    /// Who leads, if known; this node itself included.
    pub leader: Option<LeaderHint>,
    /// The newest term it has seen.
    pub term: u64,
    /// The last index of its log, 0 if it is empty.
    pub last_log_index: u64,
    /// The newest applied index, 0 if there is none.
    pub applied_index: u64,
    /// Whether it can serve: the cluster is formed and a leader is known that has opened its term.
    pub serving: bool,
    /// Whether the node was started to restore a cluster although it belongs to one that is formed:
    /// then that means nothing, and is to be removed from how the node is started.
    pub restore_unused: bool,
    /// What a node that belongs to no cluster yet waits for, for people; `None` once it has a seat.
    pub waiting_for: Option<String>,
}

impl Status {
    pub(crate) fn starting(name: &str) -> Self {
        Self {
            cluster: None,
            node_id: None,
            name: name.to_owned(),
            role: Role::Forming,
            leader: None,
            term: 0,
            last_log_index: 0,
            applied_index: 0,
            serving: false,
            restore_unused: false,
            waiting_for: None,
        }
    }
}
