//! Refusals in the words of Kubernetes, such that client-go does with each what is right: it repeats a
//! write of its own accord only after 429 and 503 with `Retry-After`, which are answered only where nothing was
//! done.

use std::time::Duration;

use ringfence_core::{Holder, Limit, Millis, Rejection};
use ringfence_lease_api::Failure;
use ringfence_lease_api::status::Cause;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_services::{NoBody, ObjectRefused};

/// When a caller may come back, in seconds.
const RETRY_AFTER: u32 = 1;

/// The longest that a refusal is held back: shorter than what electors wait for an answer.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What was asked, for the words of a refusal.
#[derive(Clone, Copy)]
pub(super) struct What<'a> {
    pub(super) verb: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// A refusal of [`ringfence_services::ObjectService`].
pub(super) fn of(what: What<'_>, refused: &ObjectRefused) -> Failure {
    match refused {
        ObjectRefused::Rejected(rejection) => rejected(what, rejection),
        ObjectRefused::Held { holder, remaining } => {
            Failure::conflict(what.name, &held(holder, *remaining))
        }
        ObjectRefused::Refused(refusal) => other(what, refusal),
        ObjectRefused::Behind { asked, own } => {
            Failure::too_large_version(*asked, *own, RETRY_AFTER)
        }
    }
}

/// How long a refusal of this write is held back: some electors try again at once, for as long as the lease
/// is another's, and each try is an entry of the log.
pub(super) fn pause(refused: &ObjectRefused) -> Duration {
    let remaining = match refused {
        ObjectRefused::Held { remaining, .. } => remaining.unwrap_or(Millis::FOREVER),
        ObjectRefused::Rejected(
            Rejection::Owing { remaining }
            | Rejection::LockDelay { remaining }
            | Rejection::Revoking { remaining }
            | Rejection::QuietTime { remaining },
        ) => *remaining,
        ObjectRefused::Rejected(Rejection::Queued { .. }) => Millis::FOREVER,
        _ => return Duration::ZERO,
    };
    Duration::from_millis(remaining.0).min(PAUSE_MAX)
}

/// Who holds the lease, and for how long.
fn held(holder: &Holder, remaining: Option<Millis>) -> String {
    let (identity, token) = (holder.identity.as_str(), holder.token);
    let left = match remaining {
        Some(Millis::FOREVER) => " until its Pod has ended".to_owned(),
        Some(remaining) => format!(" for {remaining} more unless it is renewed"),
        None => String::new(),
    };
    format!("the lease is held by {identity:?} with token {token}{left}; wait for it")
}

fn rejected(what: What<'_>, rejection: &Rejection) -> Failure {
    let name = what.name;
    let message = || Refusal::from_rejection(rejection).message;
    match rejection {
        Rejection::ObjectChanged { .. } => Failure::modified(name),
        Rejection::Queued { .. }
        | Rejection::LockDelay { .. }
        | Rejection::Revoking { .. }
        | Rejection::QuietTime { .. }
        | Rejection::Owing { .. } => Failure::conflict(name, &message()),
        Rejection::Limit(
            Limit::Objects(_) | Limit::NamespaceObjects(_) | Limit::PrincipalObjects(_),
        ) => Failure::not_allowed(name, &message()),
        Rejection::NotReady | Rejection::TokensExhausted => {
            Failure::service_unavailable(message(), RETRY_AFTER)
        }
        rejection => other(what, &Refusal::from_rejection(rejection)),
    }
}

/// A duration whose TTL the cluster does not allow.
pub(super) fn duration(
    name: &str,
    seconds: u32,
    ttl: Millis,
    (min, max): (Millis, Millis),
) -> Failure {
    let why = format!(
        "the TTL of such a lease is {ttl}, and the cluster allows {min} to {max}; set another \
         duration, or the cluster's max-ttl"
    );
    let field = "spec.leaseDurationSeconds";
    Failure::invalid(name, vec![Cause::invalid(field, seconds, &why)])
}

fn other(what: What<'_>, refusal: &Refusal) -> Failure {
    let message = refusal.message.clone();
    match refusal.reason {
        Reason::Unavailable => Failure::service_unavailable(message, RETRY_AFTER),
        // It may be done yet: a client must look before it writes again.
        Reason::OutcomeUnknown => Failure::timeout(message),
        Reason::PermissionDenied => {
            let of_caller = refusal.metadata.get("principal");
            let user = of_caller.map_or("anonymous", String::as_str);
            Failure::forbidden(user, what.verb, what.namespace, what.name, &message)
        }
        Reason::Unauthenticated => Failure::unauthorized(&message),
        Reason::Limit => Failure::too_many_requests(message, RETRY_AFTER),
        Reason::InvalidArgument => Failure::bad_request(message),
        _ => Failure::internal(message),
    }
}

/// A body that did not come.
pub(super) fn no_body(why: NoBody) -> Failure {
    match why {
        NoBody::TooLarge(_) => Failure::too_large(super::BODY_BYTES_MAX),
        NoBody::Crowded(refusal) => Failure::too_many_requests(refusal.message, RETRY_AFTER),
        NoBody::TooSlow(refusal) | NoBody::Broken(refusal) => Failure::bad_request(refusal.message),
    }
}
