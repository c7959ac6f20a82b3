//! Ending a grant or a request at the cluster: what is sent, and repeated until it is answered.

use std::sync::Arc;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::cancel_response::Result as CancelResult;
use ringfence_proto::v1::{
    CancelRequest, ReleaseRequest, TransferRequest, client_frame, server_frame,
};

use super::{EndTarget, Ending};
use crate::clock::Moment;
use crate::session::inner::SessionInner;
use crate::session::request_numbers::{RequestKind, RequestNumber};
use crate::transport::calls::ReplyMode;
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;
use crate::transport::retry;

/// Between two tries: as long as after so many in a row.
const PAUSE_STEP: u32 = 3;

/// Repeats the ending until the cluster has answered it; or, with a deadline, until then; or,
/// without one, as long as the session lives. Says whether it is settled.
pub(super) async fn end(ending: &Ending, deadline: Option<Moment>) -> bool {
    let token = match ending.target {
        EndTarget::Grant(token) => Some(token),
        EndTarget::Request(target) => match cancel(&ending.session, target, deadline).await {
            Ok(granted) => {
                ending.session.confirm(target);
                if let Some(token) = granted {
                    // The grant crossed the cancel. It was never believed in here, so its loss, if
                    // the cluster reports one, may be acknowledged at once; then it is released by
                    // its token.
                    ending.session.forget_grant(token);
                }
                granted
            }
            Err(error) => {
                if settles(&error) {
                    ending.session.confirm(target);
                }
                return settles(&error);
            }
        },
    };
    let Some(token) = token else { return true };
    match release(ending, token, deadline).await {
        Ok(()) => true,
        Err(error) => settles(&error),
    }
}

/// A refusal of the request itself settles the matter as well: what was to be ended has ended. One
/// that speaks of its own try, as of a credential that proves nothing, leaves it as it was.
pub(super) fn settles(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal) if retry::covers_earlier_tries(refusal, true))
}

/// Takes a request back. Returns the token it was granted, if it was.
async fn cancel(
    session: &Arc<SessionInner>,
    target: u64,
    deadline: Option<Moment>,
) -> Result<Option<FencingToken>, CallError> {
    let body = |number: RequestNumber| {
        client_frame::Body::Cancel(CancelRequest {
            session: Some(session.handle().to_wire()),
            number: number.number,
            lowest: number.lowest,
            target,
        })
    };
    match repeat(session, deadline, body).await? {
        server_frame::Body::Cancel(reply)
            if reply.result() == CancelResult::Granted && !planted(Bug::CrossedGrantKept) =>
        {
            Ok(FencingToken::new(reply.token))
        }
        _ => Ok(None),
    }
}

pub(super) async fn release(
    ending: &Ending,
    token: FencingToken,
    deadline: Option<Moment>,
) -> Result<(), CallError> {
    let body = |number: RequestNumber| {
        client_frame::Body::Release(ReleaseRequest {
            session: Some(ending.session.handle().to_wire()),
            number: number.number,
            lowest: number.lowest,
            name: ending.name.to_string(),
            token: token.get(),
            close_session: false,
        })
    };
    repeat(&ending.session, deadline, body).await.map(drop)
}

/// What a hand-over brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The session that holds the lease now.
    pub to: SessionId,
    /// The new holder's token.
    pub token: FencingToken,
}

/// Hands a grant over, to a session that waits for it or to the head of the queue.
pub(crate) async fn transfer(
    session: &Arc<SessionInner>,
    name: &LeaseName,
    token: FencingToken,
    to: Option<SessionId>,
) -> Result<Transferred, CallError> {
    let deadline = session.transport.deadline();
    let body = |number: RequestNumber| {
        client_frame::Body::Transfer(TransferRequest {
            session: Some(session.handle().to_wire()),
            number: number.number,
            lowest: number.lowest,
            name: name.to_string(),
            token: token.get(),
            to_session: to.map_or(0, SessionId::get),
        })
    };
    let reply = repeat(session, Some(deadline), body).await?;
    let transferred = match reply {
        server_frame::Body::Transfer(reply) => SessionId::new(reply.to_session)
            .zip(FencingToken::new(reply.token))
            .map(|(to, token)| Transferred { to, token }),
        _ => None,
    };
    transferred.ok_or_else(CallError::unexpected_reply)
}

/// Sends a request until it is answered, under one number; with a deadline until then, without one
/// as long as the session lives. The request has to name what it ends, so that sending it once
/// more under another number does no harm.
async fn repeat(
    session: &Arc<SessionInner>,
    deadline: Option<Moment>,
    body: impl Fn(RequestNumber) -> client_frame::Body,
) -> Result<server_frame::Body, CallError> {
    let transport = &session.transport;
    let mut number: Option<ConfirmOnDrop> = None;
    loop {
        let until = deadline.unwrap_or_else(|| transport.deadline());
        let with = match &number {
            Some(spent) => spent.number,
            None => match session.next_number(RequestKind::Ending, until).await {
                Ok(taken) => {
                    let spent = ConfirmOnDrop {
                        session,
                        number: taken,
                    };
                    number.insert(spent).number
                }
                // As many are under way as there may be; what was given up is not forgotten for that.
                Err(_) if deadline.is_none() && session.loss().is_none() => continue,
                Err(error) => return Err(error),
            },
        };
        let error = match transport.call(body(with), ReplyMode::Prompt, until).await {
            // Not a reason to believe for longer, see the answer of an acquire.
            Ok(answer) => return Ok(answer.body),
            Err(error) => error,
        };
        if let CallError::Refused(refusal) = &error {
            session.apply_refusal(refusal);
            match refusal.reason {
                // Another client spends numbers of this session, or holds them up.
                // Repeated under a new number. That is safe here and nowhere else: the request
                // names the token or the request that it ends, so a second one finds nothing to
                // end.
                Reason::StaleRequest | Reason::RequestMismatch | Reason::Limit => number = None,
                _ if settles(&error) => return Err(error),
                // There may be another credential to show soon.
                _ => {}
            }
        }
        let give_up = match deadline {
            Some(deadline) => transport.now() >= deadline,
            None => session.loss().is_some(),
        };
        if give_up {
            return Err(error);
        }
        // Also where nothing was sent, which may be reported at once.
        let retry_after = match &error {
            CallError::Refused(refusal) => refusal.retry_after,
            _ => None,
        };
        let pause = retry::pause(PAUSE_STEP, retry_after);
        transport.sleep_until(transport.now() + pause).await;
    }
}

/// A number that is confirmed when no caller asks under it any more, in whatever way that comes:
/// the request names what it ends, so a late duplicate of it does no harm.
struct ConfirmOnDrop<'a> {
    session: &'a SessionInner,
    number: RequestNumber,
}

impl Drop for ConfirmOnDrop<'_> {
    fn drop(&mut self) {
        self.session.confirm(self.number.number);
    }
}
