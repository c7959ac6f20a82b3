//! Ending a grant or a request at the cluster, repeated until it is answered.

use std::sync::Arc;

use ringfence_core::FencingToken;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::cancel_response::Result as CancelResult;
use ringfence_proto::v1::{CancelRequest, ReleaseRequest, client_frame, server_frame};

use crate::calls::Manner;
use crate::clock::Moment;
use crate::error::CallError;
use crate::hub::Hub;
use crate::liveness::Liveness;
use crate::numbers::{Number, Use};
use crate::refusal::Reason;
use crate::retry;
use crate::session::Hold;
use crate::unsettled::{Ending, What};

/// Between two tries: as long as after so many in a row.
const PAUSE_STEP: u32 = 3;

/// Works on an ending in the background, as long as the session lives. A `hold` keeps it alive
/// meanwhile.
pub(crate) fn in_background(hub: &Hub, work: Work, hold: Option<Arc<Hold>>) {
    let task = async move {
        let settled = end(&work.ending, None).await;
        work.over(settled);
        drop(hold);
    };
    drop(hub.thread.spawn(task));
}

/// The work on an ending that was claimed. Dropping it leaves the ending to others.
pub(crate) struct Work {
    pub(crate) ending: Arc<Ending>,
    settled: bool,
}

impl Work {
    pub(crate) fn on(ending: Arc<Ending>) -> Self {
        Self {
            ending,
            settled: false,
        }
    }

    pub(crate) fn over(mut self, settled: bool) {
        self.settled = settled;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let hub = &self.ending.session.hub;
        hub.unsettled.finish(&self.ending, self.settled);
    }
}

/// Repeats the ending until the cluster has answered it; or, with a deadline, until then; or,
/// without one, as long as the session lives. Says whether it is settled.
pub(crate) async fn end(ending: &Ending, deadline: Option<Moment>) -> bool {
    let token = match ending.what {
        What::Grant(token) => Some(token),
        What::Request(target) => match cancel(&ending.session, target, deadline).await {
            Ok(granted) => {
                ending.session.confirm(target);
                if let Some(token) = granted {
                    ending.session.disown(token);
                }
                granted
            }
            Err(error) => {
                if is_answer(&error) {
                    ending.session.confirm(target);
                }
                return is_answer(&error);
            }
        },
    };
    let Some(token) = token else { return true };
    match release(ending, token, deadline).await {
        Ok(()) => true,
        Err(error) => is_answer(&error),
    }
}

/// A refusal settles the matter as well: what was to be ended has ended.
fn is_answer(error: &CallError) -> bool {
    matches!(error, CallError::Refused(_))
}

/// Takes a request back. Returns the token it was granted, if it was.
async fn cancel(
    session: &Arc<Liveness>,
    target: u64,
    deadline: Option<Moment>,
) -> Result<Option<FencingToken>, CallError> {
    let body = |number: Number| {
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

/// Releases a grant.
pub(crate) async fn release(
    ending: &Ending,
    token: FencingToken,
    deadline: Option<Moment>,
) -> Result<(), CallError> {
    let body = |number: Number| {
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

/// Sends a request until it is answered, under one number; with a deadline until then, without one
/// as long as the session lives. The request has to name what it ends, so that sending it once
/// more under another number does no harm.
pub(crate) async fn repeat(
    session: &Arc<Liveness>,
    deadline: Option<Moment>,
    body: impl Fn(Number) -> client_frame::Body,
) -> Result<server_frame::Body, CallError> {
    let hub = &session.hub;
    let mut number: Option<Spent> = None;
    loop {
        let until = deadline.unwrap_or_else(|| hub.deadline());
        let with = match &number {
            Some(spent) => spent.number,
            None => match session.number(Use::Ending, until).await {
                Ok(taken) => {
                    let spent = Spent {
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
        let error = match hub.call(body(with), Manner::Prompt, until).await {
            // Not a reason to believe for longer, see the answer of an acquire.
            Ok(answer) => return Ok(answer.body),
            Err(error) => error,
        };
        if let CallError::Refused(refusal) = &error {
            session.heed(refusal);
            match refusal.reason {
                // Another client spends numbers of this session, or holds them up.
                Reason::StaleRequest | Reason::RequestMismatch | Reason::Limit => number = None,
                _ => return Err(error),
            }
        }
        let give_up = match deadline {
            Some(deadline) => hub.now() >= deadline,
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
        hub.sleep_until(hub.now() + pause).await;
    }
}

/// A number that is confirmed when no caller asks under it any more, in whatever way that comes:
/// the request names what it ends, so a late duplicate of it does no harm.
struct Spent<'a> {
    session: &'a Liveness,
    number: Number,
}

impl Drop for Spent<'_> {
    fn drop(&mut self) {
        self.session.confirm(self.number.number);
    }
}
