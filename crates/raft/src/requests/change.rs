//! The way of a wish: to the leader, which asks the log whether its caller may, into the leader's
//! queue, and its outcome back.

use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{Called, Caller, Command, Mode, Outcome, Rejection, Scope, Verb};
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_outcome, encode_outcome};
use tokio::sync::watch;

use crate::config::Timing;
use crate::leader::hand_over::hand_over;
use crate::leader::term::{LeaderTerm, Route};
use crate::membership::error::{MembershipError, RETRY_AFTER_MILLIS};
use crate::membership::list::{member_to_pb, members};
use crate::membership::wish::Request;
use crate::network::forward::{CallBody, Failed};
use crate::platform::clock;
use crate::types::codec;
use crate::types::reply::ProposeError;

/// Who wants a change.
#[derive(Debug, Clone)]
pub(crate) enum By {
    /// A client; `None` if nothing was proven of it.
    Client(Option<Caller>),
    /// The node that sends it, for itself.
    Itself,
}

/// A change and who wants it.
pub(crate) fn asked_by(
    by: By,
    change: pb::change_members::Change,
    force: bool,
) -> pb::ChangeMembers {
    let own = matches!(by, By::Itself);
    let caller = match by {
        By::Client(caller) => caller.as_ref().map(codec::caller_to_pb),
        By::Itself => None,
    };
    pb::ChangeMembers {
        change: Some(change),
        force,
        caller,
        own,
    }
}

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
                pb::answer::Body::MembersChanged(changed) => not_denied(changed),
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
    let caller = change.caller.as_ref().map(codec::caller_from_pb);
    let caller = caller.transpose();
    let caller = caller.map_err(|error| MembershipError::refused(error.to_string()))?;
    let own = change.own;
    let request = Request::from_pb(change)?;
    let Route::Leader(leading) = route.borrow().clone() else {
        return Err(MembershipError::not_done("this node does not lead"));
    };
    // A list shows and changes nothing: reads are judged where they are answered.
    if request != Request::List && !(own && request.can_be_own()) {
        may_operate(&leading, &request, caller).await?;
    }
    let node_id = match request {
        Request::Change(ask) => leading.members.wish(ask, timing.leader_wait).await?,
        Request::HandOver(to) => hand_over(&leading, to).await?,
        Request::List => 0,
    };
    let leader = route.borrow().leader();
    let mut members = members(leading.raft(), leader);
    let mut conditions = leading.conditions();
    for member in &mut members {
        let known = conditions.remove(&member.node_id);
        (member.condition, member.heard) = known.unzip();
    }
    let members = members.into_iter().map(member_to_pb).collect();
    Ok(pb::MembersChanged {
        node_id,
        members,
        refused: Bytes::new(),
    })
}

/// Asks the log whether the caller may, once callers are proven. So every change stands in the log
/// with its principal, before it is made.
async fn may_operate(
    leading: &LeaderTerm,
    request: &Request,
    caller: Option<Caller>,
) -> Result<(), MembershipError> {
    let allowed = {
        let machine = leading.state.machine();
        let access = machine.access();
        if access.mode() == Mode::Off || planted(Bug::MembersChangedUnjudged) {
            return Ok(());
        }
        let proven = caller.as_ref().filter(|caller| caller.is_proven());
        let principal = proven.map(|caller| &caller.principal);
        let judged = access
            .admit(proven)
            .and_then(|()| access.judge(principal, Verb::Operate, Scope::Cluster));
        access.mode() != Mode::Enforced || judged.is_ok()
    };
    let change = request.described(|id| leading.called(id));
    let command = Command::Operate { change };
    let command = match caller {
        Some(caller) => Command::Called(Box::new(Called { caller, command })),
        None => command,
    };
    // Whatever becomes of the question, without an answer nothing is changed.
    let judged = leading.write_operation(&command, allowed).await;
    let judged = judged.map_err(|error| MembershipError::not_done(error.to_string()))?;
    match judged.outcome {
        Outcome::Done => Ok(()),
        Outcome::Rejected(Rejection::NotReady) => {
            Err(MembershipError::not_done("the term is not open yet"))
        }
        Outcome::Rejected(rejection) => Err(MembershipError::Denied(Box::new(rejection))),
        other => Err(MembershipError::not_done(format!(
            "whether it may be done was answered with {other:?}"
        ))),
    }
}

/// A refusal as the leader's answer to another node.
pub(crate) fn denied_to_pb(rejection: &Rejection) -> pb::MembersChanged {
    pb::MembersChanged {
        refused: encode_outcome(&Outcome::Rejected(rejection.clone())),
        ..pb::MembersChanged::default()
    }
}

fn not_denied(changed: pb::MembersChanged) -> Result<pb::MembersChanged, MembershipError> {
    if changed.refused.is_empty() {
        return Ok(changed);
    }
    match decode_outcome(&changed.refused) {
        Ok(Outcome::Rejected(rejection)) => Err(MembershipError::Denied(Box::new(rejection))),
        _ => Err(MembershipError::refused(
            "the leader refused the change for a reason that this release cannot read",
        )),
    }
}
