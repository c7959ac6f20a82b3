//! Outcomes of acquires as messages, for the unary call and the stream.

use ringfence_core::{Acquired, ClusterTime, Opened, Rejection, SessionId};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::Node;

/// A session that was opened.
pub(super) fn opened(opened: &Opened, time: ClusterTime, node: &Node) -> v1::OpenResponse {
    match node.read(|state| state.cluster()) {
        Some(cluster) => wire::opened_to_wire(opened, time, &cluster),
        // The answer came through another node, and this one has not even seen the first entry.
        None => v1::OpenResponse {
            session: opened.session.get(),
            ttl_ms: opened.ttl.0,
            cluster_time_ms: time.0,
            cluster_id: bytes::Bytes::new(),
        },
    }
}

/// The end of an acquire that does not wait any more.
pub(super) fn acquired(
    acquired: &Acquired,
    time: ClusterTime,
    opened: Option<v1::OpenResponse>,
) -> Result<v1::AcquireResponse, Refusal> {
    match wire::acquired_to_wire(acquired) {
        Ok(grant) => Ok(v1::AcquireResponse {
            grant: Some(grant),
            opened,
            cluster_time_ms: time.0,
        }),
        Err(refusal) => Err(with_session(refusal, opened)),
    }
}

/// A refusal of an acquire that opened a session all the same: its client needs the number.
pub(super) fn with_session(refusal: Refusal, opened: Option<v1::OpenResponse>) -> Refusal {
    match opened {
        Some(opened) => refusal
            .with("session", opened.session)
            .with("ttl_ms", opened.ttl_ms),
        None => refusal,
    }
}

/// A session that is gone while one of its requests waited. This node has applied its end.
pub(super) fn session_gone(session: SessionId, node: &Node) -> Refusal {
    let cause = node.read(|machine| machine.session_end(session));
    Refusal::from_rejection(&Rejection::SessionExpired { cause }).with("session", session)
}
