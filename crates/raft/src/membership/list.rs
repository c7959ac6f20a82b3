//! The members, as a node knows them and as nodes tell each other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use ringfence_proto::raft as pb;

use crate::network::{Condition, version_of};
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
    /// What it says of itself, once a leader has heard it; only a leader knows.
    pub condition: Option<Condition>,
    /// How long ago the leader sent the message that it answered with this; only a leader knows.
    pub heard: Option<Duration>,
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
        condition: None,
        heard: None,
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
        condition: member.condition.map(condition_to_pb),
        heard_millis: member.heard.map(millis),
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
        condition: state.condition.map(condition_from_pb),
        heard: state.heard_millis.map(Duration::from_millis),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn condition_to_pb(condition: Condition) -> pb::Condition {
    pb::Condition {
        records: condition.records,
        no_room: condition.no_room,
        peer_auth: condition.peer_auth,
        last_sync_micros: u64::try_from(condition.last_sync.as_micros()).unwrap_or(u64::MAX),
        version: condition.version.to_string(),
    }
}

fn condition_from_pb(condition: pb::Condition) -> Condition {
    Condition {
        records: condition.records,
        no_room: condition.no_room,
        peer_auth: condition.peer_auth,
        last_sync: Duration::from_micros(condition.last_sync_micros),
        version: version_of(&condition.version),
    }
}
