//! Who sends a call and for whom it is meant, checked before its first message is decoded.

use ringfence_planted::{Bug, planted};
use ringfence_proto::record::RECORD_VERSION;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Request, Status};

use crate::store::identity::Seat;
use crate::types::incarnation::Incarnation;
use crate::types::type_config::Peer;

const CLUSTER: &str = "ringfence-cluster";
const FROM: &str = "ringfence-from";
const TO: &str = "ringfence-to";
/// The newest version of log commands that the sender knows. It goes with every call of a node,
/// and with the answer to every heartbeat.
const RECORDS: &str = "ringfence-records";

/// Tells a peer which log commands this release knows.
pub(crate) fn announce(metadata: &mut MetadataMap) {
    metadata.insert(RECORDS, MetadataValue::from(RECORD_VERSION));
}

/// The newest version of log commands that the sender has announced, 0 if none.
pub(crate) fn announced(metadata: &MetadataMap) -> u32 {
    let text = metadata.get(RECORDS).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A node as callers name themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) seat: Seat,
    pub(crate) incarnation: Incarnation,
}

/// The three values that go with every call to one peer.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    cluster: MetadataValue<Ascii>,
    from: MetadataValue<Ascii>,
    to: MetadataValue<Ascii>,
}

impl Header {
    pub(crate) fn new(caller: &Caller, node_id: u64, peer: &Peer) -> Self {
        let value = |text: String| {
            MetadataValue::try_from(text).expect("hexadecimal digits and a dot are valid")
        };
        Self {
            cluster: value(caller.seat.cluster.to_string()),
            from: value(name(caller.seat.node_id, caller.incarnation)),
            to: value(name(node_id, peer.incarnation)),
        }
    }

    pub(crate) fn stamp<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(CLUSTER, self.cluster.clone());
        metadata.insert(FROM, self.from.clone());
        metadata.insert(TO, self.to.clone());
        announce(metadata);
        request
    }
}

/// Who calls, once it is sure that the call is meant for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) node_id: u64,
    pub(crate) incarnation: Incarnation,
}

/// Checks the cluster and the receiver of a call, and says who sent it.
pub(crate) fn check(metadata: &MetadataMap, me: &Caller) -> Result<Sender, Status> {
    let text = |key: &str| {
        let value = metadata.get(key).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| Status::invalid_argument(format!("the call carries no {key}")))
    };
    let cluster = text(CLUSTER)?;
    let mine = me.seat.cluster.to_string();
    if cluster != mine {
        return Err(Status::failed_precondition(format!(
            "this node belongs to cluster {mine}, the call comes from cluster {cluster}"
        )));
    }
    let to = text(TO)?;
    let my_name = name(me.seat.node_id, me.incarnation);
    if to != my_name && !planted(Bug::AnyIncarnation) {
        return Err(Status::failed_precondition(format!(
            "the call is meant for node {to}, this is node {my_name}"
        )));
    }
    let from = text(FROM)?;
    parse(from).ok_or_else(|| Status::invalid_argument(format!("{FROM} is no node: {from:?}")))
}

/// Any headers: they name a sender, or are refused in words. What is announced is a number.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_any(metadata: &MetadataMap, me: &Caller) {
    announced(metadata);
    match check(metadata, me) {
        Ok(sender) => {
            let again = name(sender.node_id, sender.incarnation);
            assert_eq!(parse(&again), Some(sender));
        }
        Err(refused) => assert!(!refused.message().is_empty()),
    }
}

fn name(node_id: u64, incarnation: Incarnation) -> String {
    format!("{node_id}.{incarnation}")
}

fn parse(text: &str) -> Option<Sender> {
    let (node_id, incarnation) = text.split_once('.')?;
    let digits = incarnation.as_bytes();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let incarnation = u128::from_str_radix(incarnation, 16).ok()?.to_be_bytes();
    Some(Sender {
        node_id: node_id.parse().ok()?,
        incarnation: Incarnation::from_slice(&incarnation)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ClusterId;

    fn caller(cluster: u8, node_id: u64, incarnation: u8) -> Caller {
        Caller {
            seat: Seat {
                cluster: ClusterId::new([cluster; 16]),
                node_id,
            },
            incarnation: Incarnation::from_slice(&[incarnation; 16]).unwrap(),
        }
    }

    fn metadata(from: &Caller, to: &Caller) -> MetadataMap {
        let peer = Peer {
            incarnation: to.incarnation,
            ..Peer::default()
        };
        Header::new(from, to.seat.node_id, &peer)
            .stamp(())
            .metadata()
            .clone()
    }

    #[test]
    fn a_call_for_this_node_says_who_sent_it() {
        let (a, b) = (caller(1, 1, 0xa1), caller(1, 2, 0xb2));
        let sender = check(&metadata(&a, &b), &b).unwrap();
        assert_eq!(
            sender,
            Sender {
                node_id: 1,
                incarnation: a.incarnation
            }
        );
    }

    #[test]
    fn another_cluster_node_or_incarnation_is_refused() {
        let (a, b) = (caller(1, 1, 0xa1), caller(1, 2, 0xb2));
        for receiver in [caller(9, 2, 0xb2), caller(1, 3, 0xb2), caller(1, 2, 0xb3)] {
            let refused = check(&metadata(&a, &b), &receiver).unwrap_err();
            assert_eq!(
                refused.code(),
                tonic::Code::FailedPrecondition,
                "{receiver:?}"
            );
        }
    }

    #[test]
    fn every_call_announces_which_log_commands_its_sender_knows() {
        let (a, b) = (caller(1, 1, 0xa1), caller(1, 2, 0xb2));
        assert_eq!(announced(&metadata(&a, &b)), RECORD_VERSION);
        assert_eq!(announced(&MetadataMap::new()), 0);
    }

    #[test]
    fn a_call_without_names_is_refused() {
        let refused = check(&MetadataMap::new(), &caller(1, 1, 1)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}
