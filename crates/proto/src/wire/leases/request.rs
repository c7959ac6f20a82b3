//! Requests that change something, and what they are answered with.

use ringfence_core::{
    Acquire, Acquired, Ask, Cancelled, ClusterTime, Command, LOCK_DELAY_MAX, Millis, Open, Request,
    RequestNumber, Revoke, SessionId, WAIT_MAX,
};

use crate::v1::cancel_response::Result as CancelResult;
use crate::wire::{
    check, grant_to_wire, open_from_wire, open_to_wire, session_handle_from_wire,
    session_handle_to_wire,
};
use crate::{DecodeError, Refusal, fields, v1};

/// The command of an acquire: a request of a session, or, with `open`, the opening of a session
/// with this as its request number 1.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn acquire_from_wire(acquire: v1::AcquireRequest) -> Result<Command, Refusal> {
    let ask = Acquire {
        name: check::lease_name(&acquire.name, "name")?,
        wait: bounded(acquire.wait_ms, WAIT_MAX, "wait_ms")?,
        data: check::holder_data(&acquire.data, "data")?,
        lock_delay: bounded(Some(acquire.lock_delay_ms), LOCK_DELAY_MAX, "lock_delay_ms")?
            .unwrap_or_default(),
    };
    match (acquire.session, acquire.open) {
        (Some(_), Some(_)) => Err(Refusal::invalid(
            "open",
            "both `session` and `open`",
            "exactly one of them",
        )),
        (session, None) => {
            let header = Header {
                session,
                number: acquire.number,
                lowest: acquire.lowest,
            };
            Ok(Command::Request(header.request(Ask::Acquire(ask))?))
        }
        (None, Some(open)) => {
            if acquire.number > 1 {
                return Err(Refusal::invalid(
                    "number",
                    acquire.number,
                    "0 or 1, with `open`",
                ));
            }
            let open = open_from_wire(open)?;
            outlives_its_wait(&open, ask.wait)?;
            Ok(Command::Open(Open {
                acquire: Some(ask),
                ..open
            }))
        }
    }
}

/// The number of a session is in the answer, and the answer comes when the wait is over: until then
/// its caller cannot keep it alive. With a wait as long as the TTL the session would end first, and
/// take its place in the queue along, after a wait for nothing.
fn outlives_its_wait(open: &Open, wait: Option<Millis>) -> Result<(), Refusal> {
    let Some(wait) = wait.filter(|wait| *wait >= open.ttl) else {
        return Ok(());
    };
    let allowed = format!(
        "with `open`, less than the session's TTL of {} ms: no client can keep the session alive before \
         this call is answered. To wait for longer, open the session first and keep it alive",
        open.ttl.0
    );
    Err(Refusal::invalid("wait_ms", wait.0, allowed))
}

/// The grant that answers an acquire, or why there is none. A request that still waits has no
/// answer yet: of it the refusal says that its outcome is unknown.
///
/// # Errors
/// The refusal to answer with.
pub fn acquired_to_wire(acquired: &Acquired) -> Result<v1::Grant, Refusal> {
    match acquired {
        Acquired::Granted(granted) => Ok(grant_to_wire(granted)),
        Acquired::Waiting { name } => {
            let why = format!("the request still waits for lease {name}");
            Err(Refusal::outcome_unknown(why).with("name", name))
        }
        Acquired::Ended { name, token, cause } => Err(Refusal::ended(name, *token, cause.as_ref())),
        Acquired::TimedOut { name } => Err(Refusal::wait_timeout(name)),
        Acquired::Cancelled { name } => Err(Refusal::cancelled(name.as_ref())),
        Acquired::Refused(rejection) => Err(Refusal::from_rejection(rejection)),
    }
}

/// The request to take an earlier one back.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn cancel_from_wire(cancel: v1::CancelRequest) -> Result<Request, Refusal> {
    let v1::CancelRequest {
        session,
        number,
        lowest,
        target,
    } = cancel;
    let ask = Ask::Cancel {
        number: check::number(target, "target")?,
    };
    Header {
        session,
        number,
        lowest,
    }
    .request(ask)
}

/// The answer to a cancel.
#[must_use]
pub fn cancelled_to_wire(cancelled: &Cancelled, time: ClusterTime) -> v1::CancelResponse {
    let (result, name, token) = match cancelled {
        Cancelled::Removed => (CancelResult::Removed, String::new(), 0),
        Cancelled::Granted { name, token } => {
            (CancelResult::Granted, name.as_str().into(), token.get())
        }
        Cancelled::Settled => (CancelResult::Settled, String::new(), 0),
        Cancelled::Voided => (CancelResult::Voided, String::new(), 0),
    };
    v1::CancelResponse {
        result: result.into(),
        name,
        token,
        cluster_time_ms: time.0,
    }
}

/// The answer to a cancel, as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn cancelled_from_wire(response: &v1::CancelResponse) -> Result<Cancelled, DecodeError> {
    let field = "cancel.result";
    match CancelResult::try_from(response.result) {
        Ok(CancelResult::Removed) => Ok(Cancelled::Removed),
        Ok(CancelResult::Granted) => Ok(Cancelled::Granted {
            name: fields::lease_name(&response.name, "cancel.name")?,
            token: fields::token(response.token, "cancel.token")?,
        }),
        Ok(CancelResult::Settled) => Ok(Cancelled::Settled),
        Ok(CancelResult::Voided) => Ok(Cancelled::Voided),
        Ok(CancelResult::Unspecified) => Err(DecodeError::Missing { field }),
        Err(_) => Err(DecodeError::invalid(
            field,
            format!("{} is no known result", response.result),
        )),
    }
}

/// The request to give a lease back.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn release_from_wire(release: v1::ReleaseRequest) -> Result<Request, Refusal> {
    let v1::ReleaseRequest {
        session,
        number,
        lowest,
        name,
        token,
        close_session,
    } = release;
    let ask = Ask::Release {
        name: check::lease_name(&name, "name")?,
        token: check::token(token, "token")?,
        close: close_session,
    };
    Header {
        session,
        number,
        lowest,
    }
    .request(ask)
}

/// The request to hand a lease over.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn transfer_from_wire(transfer: v1::TransferRequest) -> Result<Request, Refusal> {
    let v1::TransferRequest {
        session,
        number,
        lowest,
        name,
        token,
        to_session,
    } = transfer;
    let ask = Ask::Transfer {
        name: check::lease_name(&name, "name")?,
        token: check::token(token, "token")?,
        to: SessionId::new(to_session),
    };
    Header {
        session,
        number,
        lowest,
    }
    .request(ask)
}

/// The command of a revoke.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn revoke_from_wire(revoke: v1::RevokeRequest) -> Result<Revoke, Refusal> {
    Ok(Revoke {
        name: check::lease_name(&revoke.name, "name")?,
        token: check::token(revoke.token, "token")?,
        now: revoke.now,
        reason: check::operator_text(revoke.reason, "reason")?,
        operator: check::operator_text(revoke.operator, "operator")?,
    })
}

/// An `Open` that acquires a lease in the same step; `None` if it acquires none.
#[must_use]
pub fn acquire_to_wire(open: &Open) -> Option<v1::AcquireRequest> {
    let request = v1::AcquireRequest {
        open: Some(open_to_wire(open)),
        number: RequestNumber::FIRST.get(),
        lowest: RequestNumber::FIRST.get(),
        ..v1::AcquireRequest::default()
    };
    open.acquire
        .as_ref()
        .map(|acquire| with_acquire(request, acquire))
}

/// A numbered request as the body of a frame, which is also what the unary calls take.
#[must_use]
pub fn request_to_wire(request: &Request) -> v1::client_frame::Body {
    use v1::client_frame::Body;
    let session = Some(session_handle_to_wire(request.session, &request.secret));
    let (number, lowest) = (request.number.get(), request.lowest.get());
    match &request.ask {
        Ask::Acquire(acquire) => {
            let request = v1::AcquireRequest {
                session,
                number,
                lowest,
                ..v1::AcquireRequest::default()
            };
            Body::Acquire(with_acquire(request, acquire))
        }
        Ask::Cancel { number: target } => Body::Cancel(v1::CancelRequest {
            session,
            number,
            lowest,
            target: target.get(),
        }),
        Ask::Release { name, token, close } => Body::Release(v1::ReleaseRequest {
            session,
            number,
            lowest,
            name: name.as_str().into(),
            token: token.get(),
            close_session: *close,
        }),
        Ask::Transfer { name, token, to } => Body::Transfer(v1::TransferRequest {
            session,
            number,
            lowest,
            name: name.as_str().into(),
            token: token.get(),
            to_session: to.map_or(0, SessionId::get),
        }),
    }
}

fn with_acquire(request: v1::AcquireRequest, acquire: &Acquire) -> v1::AcquireRequest {
    v1::AcquireRequest {
        name: acquire.name.as_str().into(),
        wait_ms: acquire.wait.map(|wait| wait.0),
        data: fields::data_bytes(&acquire.data),
        lock_delay_ms: acquire.lock_delay.0,
        ..request
    }
}

/// What every numbered request begins with.
struct Header {
    session: Option<v1::SessionHandle>,
    number: u64,
    lowest: u64,
}

impl Header {
    fn request(self, ask: Ask) -> Result<Request, Refusal> {
        let (session, secret) = session_handle_from_wire(self.session)?;
        let number = check::number(self.number, "number")?;
        // Who names no lowest waits for nothing but this request.
        let lowest = RequestNumber::new(self.lowest).unwrap_or(number);
        if lowest > number {
            return Err(Refusal::invalid(
                "lowest",
                lowest,
                format!("0 to `number`, {number}"),
            ));
        }
        Ok(Request {
            session,
            secret,
            number,
            lowest,
            ask,
        })
    }
}

/// A length of time that is at most `max`.
fn bounded(raw: Option<u64>, max: Millis, field: &str) -> Result<Option<Millis>, Refusal> {
    match raw {
        Some(millis) if millis > max.0 => {
            Err(Refusal::invalid(field, millis, format!("0 to {}", max.0)))
        }
        _ => Ok(raw.map(Millis)),
    }
}
