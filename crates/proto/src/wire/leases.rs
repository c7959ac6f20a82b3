//! Leases.

mod read;
mod request;

use ringfence_core::{Event, FencingToken, LeaseName, LeaseView, Millis, Verdict};

pub use read::{
    HISTORY_LIMIT_MAX, HISTORY_LIMIT_STANDARD, HistoryAsk, LEASES_PAGE_MAX, LEASES_PAGE_STANDARD,
    ListAsk, check_from_wire, get_from_wire, history_from_wire, list_from_wire, prefix_from_wire,
};
pub use request::{
    acquire_from_wire, acquire_to_wire, acquired_to_wire, cancel_from_wire, cancelled_from_wire,
    cancelled_to_wire, release_from_wire, request_to_wire, revoke_from_wire, transfer_from_wire,
};

use super::{end_cause_to_wire, grant_from_wire, grant_to_wire};
use crate::v1::check_response::Verdict as WireVerdict;
use crate::v1::watch_event;
use crate::{DecodeError, fields, v1};

/// A lease as readers see it.
#[must_use]
pub fn lease_to_wire(lease: &LeaseView) -> v1::Lease {
    v1::Lease {
        name: lease.name.as_str().into(),
        holder: lease.holder.as_ref().map(grant_to_wire),
        ttl_ms: lease.ttl.0,
        remaining_ms: lease.remaining.0,
        waiters: lease.waiters,
        floor: fields::token_or_zero(lease.floor),
        blocked_ms: lease.blocked.0,
    }
}

/// A lease as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn lease_from_wire(lease: v1::Lease) -> Result<LeaseView, DecodeError> {
    Ok(LeaseView {
        name: fields::lease_name(&lease.name, "lease.name")?,
        holder: lease.holder.map(grant_from_wire).transpose()?,
        ttl: Millis(lease.ttl_ms),
        remaining: Millis(lease.remaining_ms),
        waiters: lease.waiters,
        floor: fields::token_or_none(lease.floor, "lease.floor")?,
        blocked: Millis(lease.blocked_ms),
    })
}

/// What a token is worth.
#[must_use]
pub fn verdict_to_wire(verdict: Verdict, at: v1::ReadPoint) -> v1::CheckResponse {
    let (verdict, newest) = match verdict {
        Verdict::Current => (WireVerdict::Current, 0),
        Verdict::Superseded { newest } => (WireVerdict::Superseded, newest.get()),
        Verdict::Ended => (WireVerdict::Ended, 0),
        Verdict::Unknown => (WireVerdict::Unknown, 0),
    };
    v1::CheckResponse {
        verdict: verdict.into(),
        newest,
        at: Some(at),
    }
}

/// What a token is worth, as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn verdict_from_wire(response: &v1::CheckResponse) -> Result<Verdict, DecodeError> {
    let field = "check.verdict";
    match WireVerdict::try_from(response.verdict) {
        Ok(WireVerdict::Current) => Ok(Verdict::Current),
        Ok(WireVerdict::Superseded) => Ok(Verdict::Superseded {
            newest: fields::token(response.newest, "check.newest")?,
        }),
        Ok(WireVerdict::Ended) => Ok(Verdict::Ended),
        Ok(WireVerdict::Unknown) => Ok(Verdict::Unknown),
        Ok(WireVerdict::Unspecified) => Err(DecodeError::Missing { field }),
        Err(_) => Err(DecodeError::invalid(
            field,
            format!("{} is no known verdict", response.verdict),
        )),
    }
}

/// An event as watchers see it. `None` for events that are no grants and no ends: these are
/// reported to no watcher, and only move the position on.
#[must_use]
pub fn event_to_wire(event: &Event, position: v1::Position) -> Option<v1::WatchEvent> {
    let kind = match event {
        Event::Granted(granted) => watch_event::Kind::Granted(grant_to_wire(granted)),
        Event::Ended {
            name,
            token,
            session,
            identity,
            cause,
            at,
        } => watch_event::Kind::Ended(v1::GrantEnded {
            name: name.as_str().into(),
            token: token.get(),
            session: session.get(),
            identity: identity.as_str().into(),
            cause: Some(end_cause_to_wire(cause)),
            at_unix_ms: at.0,
        }),
        Event::WaitEnded { .. }
        | Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::Forgotten { .. } => return None,
    };
    Some(v1::WatchEvent {
        kind: Some(kind),
        position: Some(position),
    })
}

/// A lease of the present state, as a watch begins with it.
#[must_use]
pub fn present_to_wire(lease: &LeaseView, position: v1::Position) -> v1::WatchEvent {
    v1::WatchEvent {
        kind: Some(watch_event::Kind::Present(lease_to_wire(lease))),
        position: Some(position),
    }
}

/// The greatest token granted for a name.
#[must_use]
pub fn floor_to_wire(name: &LeaseName, token: FencingToken) -> v1::Floor {
    v1::Floor {
        name: name.as_str().into(),
        token: token.get(),
    }
}

/// The greatest token granted for a name, as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn floor_from_wire(floor: &v1::Floor) -> Result<(LeaseName, FencingToken), DecodeError> {
    Ok((
        fields::lease_name(&floor.name, "floor.name")?,
        fields::token(floor.token, "floor.token")?,
    ))
}
