//! The way of a wish: to the leader, into its queue, and its outcome back.

use std::time::Duration;

use ringfence_proto::raft as pb;
use tokio::sync::watch;

use crate::config::Timing;
use crate::leader::hand_over::hand_over;
use crate::leader::term::Route;
use crate::membership::error::{MembershipError, RETRY_AFTER_MILLIS};
use crate::membership::list::{member_to_pb, members};
use crate::membership::wish::Request;
use crate::network::forward::{CallBody, Failed};
use crate::platform::clock;
use crate::types::reply::ProposeError;

/// Makes a change here if this node leads, or hands it to the leader. What cannot be done yet is
/// tried again for a while.
pub(crate) async fn change(
    route: &watch::Sender<Route>,
    timing: Timing,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let deadline = clock::since_boot() + timing.leader_wait;
    loop {
        match change_once(route, timing, change.clone()).await {
            // Only what certainly had no effect is repeated: a second attempt at a change with an
            // unknown outcome could undo what another caller did in between.
            Err(MembershipError::NotDone { .. }) if clock::since_boot() < deadline => {
                tokio::time::sleep(Duration::from_millis(RETRY_AFTER_MILLIS)).await;
            }
            done => return done,
        }
    }
}

async fn change_once(
    route: &watch::Sender<Route>,
    timing: Timing,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let to = route.borrow().clone();
    match to {
        Route::Leader(_) => change_as_leader(route, timing, change).await,
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
        Route::NoLeader => Err(MembershipError::not_done("no node leads")),
    }
}

/// Hands a wish to this leader's reconciler and waits for its outcome. The caller may stop waiting
/// at any time.
pub(crate) async fn change_as_leader(
    route: &watch::Sender<Route>,
    timing: Timing,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let request = Request::from_pb(change)?;
    let Route::Leader(leading) = route.borrow().clone() else {
        return Err(MembershipError::not_done("this node does not lead"));
    };
    let node_id = match request {
        Request::Change(ask) => leading.members.wish(ask, timing.leader_wait).await?,
        Request::HandOver(to) => hand_over(&leading, to).await?,
        Request::List => 0,
    };
    let leader = route.borrow().leader();
    let members = members(leading.raft(), leader)
        .into_iter()
        .map(member_to_pb)
        .collect();
    Ok(pb::MembersChanged { node_id, members })
}
