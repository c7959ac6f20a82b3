//! The members, as a node knows them and as nodes tell each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use openraft::async_runtime::WatchReceiver;
use ringfence_proto::raft as pb;

use crate::store::state::Raft;
use crate::types::codec;
use crate::types::incarnation::Incarnation;
use crate::types::type_config::Peer;

/// The most first members of a cluster; every later id is greater.
pub(crate) const FIRST_MEMBERS_MAX: usize = 63;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id, never used again.
    pub node_id: u64,
    /// Its name.
    pub name: String,
    /// host:port of other nodes' calls.
    pub peer_address: String,
    /// host:port of clients' calls.
    pub client_address: String,
    /// Its directory's incarnation.
    pub incarnation: Incarnation,
    /// Whether it has a vote.
    pub voter: bool,
    /// Whether it leads, as far as the answering node knows.
    pub leader: bool,
    /// The log index that it is known to have; only a leader knows.
    pub matched: Option<u64>,
}

/// The members as this node knows them.
pub(crate) fn members(raft: &Raft, leader: Option<u64>) -> Vec<Member> {
    let metrics = raft.metrics();
    let now = metrics.borrow_watched();
    let membership = now.membership_config.clone();
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let matched = |id: &u64| {
        let replication = now.replication.as_ref()?;
        replication.get(id)?.as_ref().map(|log_id| log_id.index)
    };
    let member = |(id, peer): (&u64, &Arc<Peer>)| Member {
        node_id: *id,
        name: peer.name.clone(),
        peer_address: peer.peer_address.clone(),
        client_address: peer.client_address.clone(),
        incarnation: peer.incarnation,
        voter: voters.contains(id),
        leader: leader == Some(*id),
        matched: matched(id),
    };
    membership.nodes().map(member).collect()
}

pub(crate) fn member_to_pb(member: Member) -> pb::MemberState {
    let peer = Peer {
        name: member.name,
        peer_address: member.peer_address,
        client_address: member.client_address,
        incarnation: member.incarnation,
    };
    pb::MemberState {
        member: Some(codec::peer_to_pb(member.node_id, &peer)),
        voter: member.voter,
        leader: member.leader,
        matched: member.matched,
    }
}

pub(crate) fn member_from_pb(state: pb::MemberState) -> Option<Member> {
    let (node_id, peer) = codec::peer_from_pb(state.member?).ok()?;
    Some(Member {
        node_id,
        name: peer.name,
        peer_address: peer.peer_address,
        client_address: peer.client_address,
        incarnation: peer.incarnation,
        voter: state.voter,
        leader: state.leader,
        matched: state.matched,
    })
}
