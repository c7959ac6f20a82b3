//! The way of a wish: to the leader, into its queue, and its outcome back.

use std::sync::Arc;
use std::time::Duration;

use ringfence_proto::raft as pb;

use super::error::{MembershipError, RETRY_AFTER_MILLIS};
use super::hand_over::hand_over;
use super::list::{leader_peer_address, member_to_pb, members};
use super::wish::Request;
use crate::clock;
use crate::inner::{Inner, Running};
use crate::leading::{Leading, Route};
use crate::network::forward::{CallBody, Failed};
use crate::reply::ProposeError;

/// Makes a change here if this node leads, or hands it to the leader. What cannot be done yet is
/// tried again for a while.
pub(crate) async fn change(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let deadline = clock::since_boot() + inner.config.timing.leader_wait;
    loop {
        match change_once(inner, change.clone()).await {
            Err(MembershipError::NotDone { .. }) if clock::since_boot() < deadline => {
                tokio::time::sleep(Duration::from_millis(RETRY_AFTER_MILLIS)).await;
            }
            done => return done,
        }
    }
}

async fn change_once(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let route = inner.route.borrow().clone();
    match route {
        Route::Leader(_) => change_as_leader(inner, change).await,
        Route::Follower(forwarder) => match forwarder.ask(CallBody::ChangeMembers(change)).await {
            Ok(answer) => match answer.0 {
                pb::answer::Body::MembersChanged(changed) => Ok(changed),
                _ => Err(MembershipError::unknown("an answer of another kind")),
            },
            Err(Failed::Refused(ProposeError::NotDone {
                why,
                retry_after: None,
                ..
            })) => Err(MembershipError::Refused { why }),
            Err(failed) => Err(ProposeError::from(failed).into()),
        },
        Route::Nowhere => Err(MembershipError::not_done("no node leads")),
    }
}

/// Hands a wish to this leader's reconciler and waits for its outcome. The caller may stop waiting
/// at any time.
pub(crate) async fn change_as_leader(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let request = Request::from_pb(change)?;
    let (running, leading) = leading(inner)?;
    let timing = inner.config.timing;
    let node_id = match request {
        Request::Change(ask) => leading.members.wish(ask, timing.leader_wait).await?,
        Request::HandOver(to) => hand_over(&running, timing.live_within(), to).await?,
        Request::List => 0,
    };
    let leader = inner.route.borrow().leader();
    let members = members(&running, leader)
        .into_iter()
        .map(member_to_pb)
        .collect();
    Ok(pb::MembersChanged { node_id, members })
}

fn leading(inner: &Inner) -> Result<(Arc<Running>, Arc<Leading>), MembershipError> {
    let Route::Leader(leading) = inner.route.borrow().clone() else {
        return Err(MembershipError::not_done("this node does not lead"));
    };
    let running = inner.running.get().cloned();
    let running = running.ok_or_else(|| MembershipError::not_done("no cluster yet"))?;
    Ok((running, leading))
}

/// Answers a node that wants to join.
pub(crate) async fn answer_join(inner: &Arc<Inner>, request: pb::JoinRequest) -> pb::JoinResponse {
    let mut answer = pb::JoinResponse::default();
    let Some(running) = inner.running.get() else {
        answer.why_not = "this node belongs to no cluster".to_owned();
        return answer;
    };
    if !matches!(&*inner.route.borrow(), Route::Leader(_)) {
        answer.why_not = "this node does not lead".to_owned();
        answer.leader_peer_address = leader_peer_address(inner).unwrap_or_default();
        return answer;
    }
    let member = pb::Member {
        node_id: 0,
        name: request.name,
        peer_address: request.peer_address,
        client_address: request.client_address,
        incarnation: request.incarnation,
    };
    let change = pb::ChangeMembers {
        change: Some(pb::change_members::Change::Add(member)),
        force: false,
    };
    match change_as_leader(inner, change).await {
        Ok(changed) => {
            answer.node_id = changed.node_id;
            answer.cluster = running.caller.seat.cluster.as_bytes().to_vec().into();
        }
        Err(error) => answer.why_not = error.to_string(),
    }
    answer
}
