//! What goes over a stream, in the words of the history format.

use ringfence_check::history::{Acquire, Block, Checked, Op, Outcome};
use ringfence_proto::refusal::{Refusal, reason_name};
use ringfence_proto::v1::cancel_response::Result as Cancelled;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::{self, Reason, client_frame, server_frame};

/// A request, as far as histories tell of it.
pub(super) struct Asked {
    pub(super) session: Option<u64>,
    pub(super) request: Option<u64>,
    pub(super) op: Op,
}

pub(super) fn asked(body: &client_frame::Body) -> Asked {
    use client_frame::Body;
    let of = |handle: &Option<v1::SessionHandle>| handle.as_ref().map(|handle| handle.session);
    let (session, request, op) = match body {
        Body::Open(ask) => {
            let hex = ask.id.iter().map(|byte| format!("{byte:02x}")).collect();
            let op = Op::Open {
                ttl_ms: ask.ttl_ms(),
                open_id: Some(hex),
                acquire: None,
            };
            (None, None, op)
        }
        Body::Acquire(ask) => {
            let op = Op::Acquire(Acquire {
                lease: ask.name.clone(),
                wait_ms: ask.wait_ms,
                lock_delay_ms: ask.lock_delay_ms,
            });
            (of(&ask.session), Some(ask.number), op)
        }
        Body::Cancel(ask) => {
            let op = Op::Cancel {
                request: ask.target,
            };
            (of(&ask.session), Some(ask.number), op)
        }
        Body::Release(ask) => {
            let op = Op::Release {
                lease: ask.name.clone(),
                token: ask.token,
                close: ask.close_session,
            };
            (of(&ask.session), Some(ask.number), op)
        }
        Body::Transfer(ask) => {
            let op = Op::Transfer {
                lease: ask.name.clone(),
                token: ask.token,
                to: (ask.to_session != 0).then_some(ask.to_session),
            };
            (of(&ask.session), Some(ask.number), op)
        }
        Body::Close(ask) => (of(&ask.session), None, Op::Close),
        Body::Get(ask) => {
            let lease = ask.name.clone();
            (None, None, Op::Get { lease })
        }
        Body::Check(ask) => {
            let op = Op::Check {
                lease: ask.name.clone(),
                token: ask.token,
            };
            (None, None, op)
        }
        // Written down in another way.
        Body::KeepAlive(_) => (None, None, Op::Close),
    };
    Asked {
        session,
        request,
        op,
    }
}

pub(super) fn answered(op: &Op, body: &server_frame::Body) -> Outcome {
    use server_frame::Body;
    match body {
        Body::Open(reply) => Outcome::Opened {
            session: reply.session,
            ttl_ms: reply.ttl_ms,
            acquired: None,
        },
        Body::Acquire(v1::AcquireResponse {
            grant: Some(grant), ..
        }) => Outcome::Granted { token: grant.token },
        Body::Cancel(reply) => match reply.result() {
            Cancelled::Removed => Outcome::Removed,
            Cancelled::Granted => Outcome::StillGranted {
                lease: reply.name.clone(),
                token: reply.token,
            },
            Cancelled::Settled => Outcome::Settled,
            Cancelled::Voided => Outcome::Voided,
            Cancelled::Unspecified => unknown("a cancel without a result"),
        },
        Body::Release(_) => Outcome::Released,
        Body::Transfer(reply) => Outcome::Transferred {
            to: reply.to_session,
            token: reply.token,
        },
        Body::Close(_) => Outcome::Closed,
        Body::Get(reply) => lease(reply.lease.as_ref()),
        Body::Check(reply) => checked(reply),
        Body::Refusal(refusal) => refused(op, refusal.clone()),
        _ => unknown("an answer to nothing that was asked"),
    }
}

fn unknown(error: &str) -> Outcome {
    let error = error.to_owned();
    Outcome::Unknown { error }
}

fn lease(lease: Option<&v1::Lease>) -> Outcome {
    let grant = lease.and_then(|lease| lease.holder.as_ref());
    Outcome::Lease {
        session: grant.map(|grant| grant.session),
        token: grant.map(|grant| grant.token),
        waiters: None,
    }
}

fn checked(reply: &v1::CheckResponse) -> Outcome {
    Outcome::Checked(match reply.verdict() {
        Verdict::Current => Checked::Current,
        Verdict::Superseded => Checked::Superseded(reply.newest),
        Verdict::Ended => Checked::Ended,
        Verdict::Unknown => Checked::Unknown,
        Verdict::Unspecified => return unknown("a check without a verdict"),
    })
}

pub(super) fn refused(op: &Op, refusal: v1::Refusal) -> Outcome {
    let Some(refusal) = Refusal::from_wire(refusal) else {
        return unknown("a refusal without a reason");
    };
    let number = |key: &str| {
        let text = refusal.metadata.get(key);
        text.and_then(|text| text.parse::<u64>().ok())
    };
    match refusal.reason {
        Reason::Unavailable => Outcome::NotDone {
            error: refusal.message,
        },
        Reason::OutcomeUnknown | Reason::Fault => unknown(&refusal.message),
        // These may be of this try alone, or the remembered answer of a waiter. Of what no rule
        // allows, an entry says so, if the request has a number.
        Reason::Unauthenticated => unknown(&refusal.message),
        Reason::PermissionDenied
            if !refusal.metadata.contains_key("rule") || matches!(op, Op::Open { .. }) =>
        {
            unknown(&refusal.message)
        }
        Reason::Held => Outcome::Held {
            session: number("holder").unwrap_or_default(),
            token: number("token").unwrap_or_default(),
            mine: refusal
                .metadata
                .get("mine")
                .is_some_and(|mine| mine == "true"),
        },
        Reason::Queued => Outcome::Queued {
            waiters: number("waiters").and_then(|waiters| u32::try_from(waiters).ok()),
        },
        Reason::LockDelay => Outcome::Blocked(Block::LockDelay),
        Reason::Revoking => Outcome::Blocked(Block::Revoking),
        Reason::QuietTime => Outcome::Blocked(Block::QuietTime),
        Reason::WaitTimeout => Outcome::TimedOut,
        Reason::Cancelled => Outcome::Cancelled,
        Reason::Ended => Outcome::Ended {
            token: number("token").unwrap_or_default(),
        },
        Reason::SessionExpired => Outcome::SessionExpired,
        Reason::StaleToken => Outcome::StaleToken {
            current: number("current"),
        },
        Reason::NotHolder => Outcome::NotHolder,
        Reason::NotWaiting => Outcome::NotWaiting,
        Reason::NotFound if matches!(op, Op::Get { .. }) => lease(None),
        other => Outcome::Refused {
            reason: reason_name(other).to_owned(),
        },
    }
}
