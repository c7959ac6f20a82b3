//! A second process with this node's identity, as from a copy of its data directory.
//!
//! Two nodes with one identity give two votes for one, so two leaders can have a majority each.
//! Other nodes cannot tell them apart, but they look for this node at one address, and at most one
//! of the two answers there. Each of the two asks who does; the one that hears the other one stops.
//! The check finds nothing while the address does not answer, or if each of the two reaches itself
//! there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;

use crate::platform::place;
use crate::platform::runtime;
use crate::shared::hello::hello;
use crate::shared::inner::{Inner, Running};
use crate::types::stop::StopReason;

/// How often a node asks. A copy that is started beside the original hears of it at once, well before
/// it could be elected; the others are those whose original was away.
const TWIN_LOOK: Duration = Duration::from_secs(5);

/// Distinguishes this process from every other one. Empty in a simulation, which copies no directories.
pub(crate) fn this_process() -> Bytes {
    match place::current() {
        None => Bytes::copy_from_slice(&runtime::random_bytes()),
        Some(_) => Bytes::new(),
    }
}

/// Stops this node if the cluster reaches another process under its identity.
pub(crate) async fn notice_twin(inner: Arc<Inner>, running: Arc<Running>) {
    let me = running.caller.seat.node_id;
    loop {
        let member = running.membership().get_node(&me).cloned();
        if let Some(member) = member
            && let Some(answer) = hello(&inner, &member.peer_address).await
            && is_twin(&inner, &running, &answer)
            && !planted(Bug::TwinsRun)
        {
            let address = member.peer_address.clone();
            inner.stop.stop(StopReason::Twin { address });
            return;
        }
        tokio::time::sleep(TWIN_LOOK).await;
    }
}

fn is_twin(inner: &Inner, running: &Running, answer: &pb::HelloResponse) -> bool {
    let seat = running.caller.seat;
    // A release that names no process answers for itself: nothing else is known.
    !answer.process.is_empty()
        && answer.process != inner.process
        && answer.incarnation[..] == inner.incarnation.as_bytes()[..]
        && answer.cluster[..] == seat.cluster.as_bytes()[..]
        && answer.node_id == seat.node_id
}
