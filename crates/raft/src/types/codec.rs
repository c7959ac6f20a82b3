//! Raft's own types as bytes and messages: one encoding for the log on disk and for the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use ringfence_core::{Caller, Principal};
use ringfence_proto::raft as pb;

use crate::types::incarnation::Incarnation;
use crate::types::proposal::{KIND_BLANK, KIND_MEMBERSHIP, KIND_PROPOSAL, Proposal};
use crate::types::type_config::{Entry, LogId, Membership, Payload, Peer, Vote, log_id};

/// Bytes or a message that have no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub(crate) struct Malformed {
    /// What was to be decoded.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Malformed {
    pub(crate) fn new(what: &'static str, why: impl ToString) -> Self {
        Self {
            what,
            why: why.to_string(),
        }
    }
}

impl From<Malformed> for std::io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, malformed)
    }
}

/// The payload of a log entry. A proposal's bytes are shared, not copied.
pub(crate) fn payload_to_bytes(payload: &Payload) -> Bytes {
    match payload {
        Payload::Blank => Bytes::from_static(&[KIND_BLANK]),
        Payload::Normal(proposal) => proposal.encoded().clone(),
        Payload::Membership(membership) => {
            let mut bytes = vec![KIND_MEMBERSHIP];
            bytes.extend(membership_to_pb(membership).encode_to_vec());
            bytes.into()
        }
    }
}

pub(crate) fn payload_from_bytes(bytes: Bytes) -> Result<Payload, Malformed> {
    match bytes.first() {
        Some(&KIND_BLANK) if bytes.len() == 1 => Ok(Payload::Blank),
        Some(&KIND_PROPOSAL) => Proposal::from_encoded(bytes)
            .map(Payload::Normal)
            .ok_or_else(|| Malformed::new("log entry", "a proposal without its times")),
        Some(&KIND_MEMBERSHIP) => {
            let message = pb::Membership::decode(bytes.slice(1..))
                .map_err(|error| Malformed::new("membership entry", error))?;
            Ok(Payload::Membership(membership_from_pb(message)?))
        }
        Some(kind) => Err(Malformed::new(
            "log entry",
            format!("kind {kind} is unknown"),
        )),
        None => Err(Malformed::new("log entry", "it is empty")),
    }
}

pub(crate) fn entry_to_pb(entry: &Entry) -> pb::Entry {
    let LogId { leader_id, index } = entry.log_id;
    pb::Entry {
        term: leader_id.term,
        index,
        payload: payload_to_bytes(&entry.payload),
    }
}

pub(crate) fn entry_from_pb(entry: pb::Entry) -> Result<Entry, Malformed> {
    Ok(Entry {
        log_id: log_id(entry.term, entry.index),
        payload: payload_from_bytes(entry.payload)?,
    })
}

pub(crate) fn log_id_to_pb(log_id: LogId) -> pb::LogId {
    pb::LogId {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

pub(crate) fn log_id_from_pb(message: pb::LogId) -> LogId {
    log_id(message.term, message.index)
}

pub(crate) fn vote_to_pb(vote: Vote) -> pb::Vote {
    pb::Vote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(crate) fn vote_from_pb(message: Option<pb::Vote>) -> Result<Vote, Malformed> {
    let message = message.ok_or_else(|| Malformed::new("raft message", "it has no vote"))?;
    let mut vote = Vote::new(message.term, message.node_id);
    vote.committed = message.committed;
    Ok(vote)
}

pub(crate) fn peer_to_pb(node_id: u64, peer: &Peer) -> pb::Member {
    pb::Member {
        node_id,
        name: peer.name.clone(),
        peer_address: peer.peer_address.clone(),
        client_address: peer.client_address.clone(),
        incarnation: Bytes::copy_from_slice(peer.incarnation.as_bytes()),
    }
}

pub(crate) fn peer_from_pb(member: pb::Member) -> Result<(u64, Peer), Malformed> {
    let incarnation = Incarnation::from_slice(&member.incarnation)
        .ok_or_else(|| Malformed::new("member", "its incarnation is not 16 bytes"))?;
    let peer = Peer {
        name: member.name,
        peer_address: member.peer_address,
        client_address: member.client_address,
        incarnation,
    };
    Ok((member.node_id, peer))
}

pub(crate) fn caller_to_pb(caller: &Caller) -> pb::Caller {
    pb::Caller {
        principal: caller.principal.as_str().to_owned(),
        token: caller.token.unwrap_or_default(),
        node: caller.node,
    }
}

pub(crate) fn caller_from_pb(caller: &pb::Caller) -> Result<Caller, Malformed> {
    let principal = Principal::parse(&caller.principal);
    Ok(Caller {
        principal: principal.map_err(|error| Malformed::new("caller", error))?,
        token: (caller.token > 0).then_some(caller.token),
        node: caller.node,
    })
}

pub(crate) fn membership_to_pb(membership: &Membership) -> pb::Membership {
    let voters = |ids: &BTreeSet<u64>| pb::membership::Voters {
        node_ids: ids.iter().copied().collect(),
    };
    pb::Membership {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        members: membership
            .nodes()
            .map(|(id, peer)| peer_to_pb(*id, peer))
            .collect(),
    }
}

pub(crate) fn membership_from_pb(message: pb::Membership) -> Result<Membership, Malformed> {
    let configs = message
        .configs
        .into_iter()
        .map(|voters| voters.node_ids.into_iter().collect());
    let members = message
        .members
        .into_iter()
        .map(|member| peer_from_pb(member).map(|(id, peer)| (id, Arc::new(peer))))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let configs: Vec<BTreeSet<u64>> = configs.collect();
    if configs.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, members).map_err(|error| Malformed::new("membership", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(payload: &Payload) {
        let bytes = payload_to_bytes(payload);
        let again = payload_from_bytes(bytes.clone()).unwrap();
        assert_eq!(payload_to_bytes(&again), bytes);
        assert_eq!(&again, payload);
    }

    #[test]
    fn every_payload_survives_its_encoding() {
        round_trip(&Payload::Blank);
        let proposal = Proposal::new(
            ringfence_core::ClusterTime(1),
            ringfence_core::WallTime(2),
            b"body",
        );
        round_trip(&Payload::Normal(proposal));
        let peer = |name: &str| {
            Arc::new(Peer {
                name: name.into(),
                ..Peer::default()
            })
        };
        let members = BTreeMap::from([(1, peer("a")), (2, peer("b")), (9, peer("c"))]);
        let configs = vec![BTreeSet::from([1]), BTreeSet::from([1, 2])];
        round_trip(&Payload::Membership(
            Membership::new(configs, members).unwrap(),
        ));
    }

    #[test]
    fn bytes_without_meaning_are_refused() {
        for bytes in [
            &b""[..],
            &[KIND_BLANK, 0],
            &[KIND_PROPOSAL],
            &[9, 9],
            &[KIND_MEMBERSHIP, 255],
        ] {
            assert!(
                payload_from_bytes(Bytes::copy_from_slice(bytes)).is_err(),
                "{bytes:?}"
            );
        }
    }
}
