//! A removed node finds out that it was removed.

use std::sync::Arc;
use std::time::Duration;

use ringfence_proto::raft as pb;

use crate::leader::term::Route;
use crate::shared::hello::lineage_of;
use crate::shared::inner::{Inner, Running};
use crate::types::stop::StopReason;

/// A node that has not heard a leader for this long asks whether it is still a member.
const LEADER_SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two looks, and the most that one answer may take.
const LOOK: Duration = Duration::from_secs(1);

/// A removed node hears nothing any more: it has to ask.
pub(crate) async fn notice_removal(inner: Arc<Inner>, running: Arc<Running>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let leads = matches!(&*inner.route.borrow(), Route::Leader(_));
        if leads
            || inner
                .leader_unheard_for()
                .is_some_and(|unheard| unheard < LEADER_SILENCE_TIMEOUT)
        {
            continue;
        }
        let membership = running.membership();
        let request = pb::HelloRequest {
            name: inner.config.name.clone(),
            incarnation: inner.incarnation.as_bytes().to_vec().into(),
            cluster: running.caller.seat.cluster.as_bytes().to_vec().into(),
            node_id: running.caller.seat.node_id,
            membership_index: membership.log_id().map_or(0, |log_id| log_id.index),
            lineage: lineage_of(&inner),
        };
        for (id, peer) in membership
            .nodes()
            .filter(|(id, _)| **id != running.caller.seat.node_id)
        {
            let link = running.transport.link(*id, peer);
            let asked = tokio::time::timeout(LOOK, link.hello(request.clone())).await;
            if let Ok(Ok(answer)) = asked
                && answer.removed
                && answer.cluster == request.cluster
            {
                inner.stop.stop(StopReason::Removed);
                return;
            }
        }
    }
}
