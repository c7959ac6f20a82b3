//! The types openraft is instantiated with. They do not leave this crate.

use std::fmt;
use std::sync::Arc;

use openraft::impls::leader_id_std;
use openraft::raft::responder::Responder;
use openraft::vote::RaftLeaderId;

use crate::types::incarnation::Incarnation;
use crate::types::proposal::Proposal;
use crate::types::reply::Applied;

/// openraft's types, fixed for this crate.
#[derive(Debug, Clone, Copy, Default, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct TypeConfig;

/// One leader per term, so that a log id is a term and an index and `LeaderTerm` belongs to a term.
pub(crate) type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub(crate) type CommittedLeaderId = <LeaderId as RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type Vote = openraft::Vote<LeaderId>;
pub(crate) type Payload = openraft::EntryPayload<Proposal, u64, Arc<Peer>>;
pub(crate) type Entry = openraft::Entry<CommittedLeaderId, Payload>;
pub(crate) type Membership = openraft::Membership<u64, Arc<Peer>>;
pub(crate) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, u64, Arc<Peer>>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, u64, Arc<Peer>>;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Proposal;
    type R = Applied;
    type NodeId = u64;
    /// A follower makes a copy of its leader at every message, to say where to go if it has to.
    type Node = Arc<Peer>;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type Responder<T>
        = FnResponder<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = crate::platform::runtime::Runtime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// Answers a proposal by a call: no task and no channel per proposal. It runs on the task that
/// applies entries, so it must not block.
pub(crate) struct FnResponder<T>(pub(crate) Box<dyn FnOnce(T) + Send>);

impl<T: openraft::OptionalSend + 'static> Responder<TypeConfig, T> for FnResponder<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// A member as the membership entries know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its name, unique among living members.
    pub name: String,
    /// host:port of other nodes' calls.
    pub peer_address: String,
    /// host:port of clients' calls.
    pub client_address: String,
    /// Its directory's incarnation.
    pub incarnation: Incarnation,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.peer_address)
    }
}

/// The log id of this term and index.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId {
        leader_id: CommittedLeaderId::new(term),
        index,
    }
}
