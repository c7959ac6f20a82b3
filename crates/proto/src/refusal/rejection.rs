//! What the core rejects, as refusals.

use std::borrow::Cow;
use std::time::Duration;

use ringfence_core::{
    ClusterTime, FencingToken, Holder, InvalidAccess, InvalidSetting, LOCK_DELAY_MAX, Limit,
    Millis, OPEN_AGE_MAX, Principal, PrincipalPattern, Rejection, RequestNumber, Rule, SessionEnd,
    TOKEN_FLOOR_MAX, UNCONFIRMED_MAX, Verb, WAIT_MAX,
};

use super::{Refusal, table};
use crate::text;
use crate::v1::Reason;

/// How soon to come back to a node that is not ready: about as long as a term takes to open.
const NOT_READY_RETRY: Duration = Duration::from_millis(100);

impl From<&Rejection> for Refusal {
    fn from(rejection: &Rejection) -> Self {
        Self::from_rejection(rejection)
    }
}

impl Refusal {
    /// The refusal that tells of a rejection.
    #[must_use]
    pub fn from_rejection(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::NotReady => {
                Self::unavailable("the cluster is not ready yet", None, NOT_READY_RETRY)
            }
            Rejection::AlreadyFormed { cluster } => Self::new(
                Reason::Membership,
                format!("cluster {cluster} exists already, and is formed once only; join it"),
            )
            .with("cluster", cluster),
            Rejection::TokenFloorTooHigh { offered } => {
                Self::invalid("token_floor", offered, format!("0 to {TOKEN_FLOOR_MAX}"))
            }
            Rejection::InvalidSetting(InvalidSetting {
                name,
                offered,
                min,
                max,
            }) => Self::invalid(&settings_field(name), offered, format!("{min} to {max}")),
            Rejection::StaleSettings { set_at } => Self::new(
                Reason::StaleSettings,
                format!(
                    "the settings were changed meanwhile, by the entry at index {set_at}; read \
                     them, and base the change on that index"
                ),
            )
            .with("set_at", set_at),
            Rejection::InvalidTtl { offered, min, max } => {
                Self::invalid("ttl_ms", offered.0, format!("{} to {}", min.0, max.0))
            }
            Rejection::InvalidWait { offered } => {
                Self::invalid("wait_ms", offered.0, format!("0 to {}", WAIT_MAX.0))
            }
            Rejection::InvalidLockDelay { offered } => Self::invalid(
                "lock_delay_ms",
                offered.0,
                format!("0 to {}", LOCK_DELAY_MAX.0),
            ),
            Rejection::OpenTooOld { seen, now } => open_too_old(*seen, *now),
            Rejection::OpenIdUsed => Self::new(
                Reason::OpenIdUsed,
                "the session opened with this id has ended, or has another secret; open with a \
                 new id",
            ),
            Rejection::SessionExpired { cause } => session_expired(cause.as_ref()),
            Rejection::WrongSecret => Self::new(
                Reason::WrongSecret,
                "the secret is not the one the session was opened with; check the session's number",
            ),
            Rejection::StaleRequest { number, lowest } => Self::new(
                Reason::StaleRequest,
                format!(
                    "request {number} is below {lowest}, the lowest this session still waits for; \
                     its answer is forgotten; {}",
                    match lowest.get() < u64::MAX >> 1 {
                        true => format!("ask again under a new request number, above {lowest}"),
                        false => "no number is left above it, open another session".to_owned(),
                    }
                ),
            )
            .with("number", number)
            .with("lowest", lowest),
            Rejection::RequestMismatch { number } => Self::new(
                Reason::RequestMismatch,
                format!(
                    "request number {number} was used for another request; repeat that one \
                     unchanged, or use a new number"
                ),
            )
            .with("number", number),
            Rejection::RequestVoided => Self::new(
                Reason::RequestVoided,
                "the request was cancelled before it came; use a new number to ask again",
            ),
            Rejection::TooManyUnconfirmed { number, lowest } => unconfirmed(*number, *lowest),
            Rejection::Held { holder, mine } => held(holder, *mine),
            Rejection::Queued { waiters } => Self::new(
                Reason::Queued,
                format!("no session holds the lease, but {waiters} wait before you; wait too"),
            )
            .with("waiters", waiters),
            Rejection::LockDelay { remaining } => Self::blocked(
                Reason::LockDelay,
                "the last holder's end was dirty and its lock-delay runs",
                *remaining,
            ),
            Rejection::Revoking { remaining } => Self::blocked(
                Reason::Revoking,
                "the last grant was revoked and its holder may not know yet",
                *remaining,
            ),
            Rejection::QuietTime { remaining } => Self::blocked(
                Reason::QuietTime,
                "the cluster was restored and holders of the lost one may still be working",
                *remaining,
            ),
            Rejection::StaleToken {
                name,
                offered,
                current,
            } => stale_token(name.as_str(), *offered, *current),
            Rejection::NotHolder { name, offered } => Self::new(
                Reason::NotHolder,
                format!(
                    "lease {name} is held with token {offered} by another session, and only that \
                     session can give it away; ask its holder, or let an operator revoke the token"
                ),
            )
            .with("name", name)
            .with("offered", offered),
            Rejection::NotWaiting { name } => Self::new(
                Reason::NotWaiting,
                format!("the session to hand lease {name} to does not wait for it; let it wait"),
            )
            .with("name", name),
            Rejection::Limit(limit) => reached(*limit),
            Rejection::TokensExhausted => Self::new(
                Reason::Limit,
                "no token is left below 2^63, so this cluster can grant nothing more; form another \
                 one, before stores that never saw a token of this one",
            )
            .with("limit", "tokens")
            .with("max", FencingToken::MAX),
            Rejection::PermissionDenied { needed } => permission_denied(needed),
            Rejection::Banned { principal } => Self::new(
                Reason::PermissionDenied,
                format!(
                    "{principal} is banned, so it may do nothing; ask an administrator to take the ban \
                     back: ringfence access unban {}",
                    as_argument(&principal.to_string())
                ),
            )
            .with("principal", principal),
            Rejection::TokenRevoked { id } => {
                let why = match id {
                    0 => "every cluster token of the session's principal was revoked".to_owned(),
                    id => format!("cluster token {id} was revoked or never made"),
                };
                let message = format!("{why}; show another credential");
                Self::new(Reason::Unauthenticated, message).with("why", why)
            }
            Rejection::OtherPrincipal => Self::new(
                Reason::PermissionDenied,
                "the session was opened by another principal, and stays its own; open another one",
            ),
            Rejection::StaleAccess { set_at } => Self::new(
                Reason::StaleAccess,
                format!(
                    "rights were changed meanwhile, by the entry at index {set_at}; read them, and \
                     base the change on that index"
                ),
            )
            .with("set_at", set_at),
            Rejection::InvalidAccess(InvalidAccess::OtherCluster) => Self::new(
                Reason::ClusterChanged,
                "the change of rights names another cluster than this one; read the rights of this \
                 cluster, and base the change on these",
            ),
            Rejection::InvalidAccess(why) => Self::invalid("changes", "(the change)", why),
            Rejection::WouldLockOut => Self::new(
                Reason::InvalidArgument,
                "the change would leave its author without the right to change it back; let \
                 another administrator make it, or make it over the socket in a node's data directory",
            )
            .with("field", "changes"),
            Rejection::ObjectChanged { present } => {
                let now = present.map_or("it is not there".to_owned(), |version| {
                    format!("its version is {version}")
                });
                Self::new(
                    Reason::RequestMismatch,
                    format!("another write of the object came first: {now}; read it again"),
                )
            }
            Rejection::Owing { remaining } => Self::blocked(
                Reason::LockDelay,
                "this candidate lost its last term, and its process may not know yet",
                *remaining,
            ),
        }
    }

    fn blocked(reason: Reason, why: &str, remaining: Millis) -> Self {
        let message =
            format!("{why}: nothing is granted for {remaining} more; wait, or come back then");
        Self::new(reason, message).retry_after(Duration::from_millis(remaining.0))
    }
}

fn permission_denied(needed: &Rule) -> Refusal {
    let (verb, names) = (needed.verb, needed.names.as_ref().map(ToString::to_string));
    let what = match &names {
        Some(names) => format!("{verb} {names}"),
        None => verb.to_string(),
    };
    let principal = &needed.principals;
    let typed = needed.to_string();
    let typed: Vec<_> = typed.split(' ').map(as_argument).collect();
    let typed = typed.join(" ");
    let message = match (verb, names.as_deref()) {
        // Any lease does to open a session, so all of them are more than it needs.
        (Verb::Acquire, Some("*")) => format!(
            "no rule allows {principal} to acquire any lease, so it may open no session; ask an \
             administrator for the leases that it needs: ringfence access grant {} acquire NAMES",
            as_argument(&principal.to_string())
        ),
        _ => {
            let forgotten = match *principal == PrincipalPattern::Exact(Principal::anonymous()) {
                true => "show a credential, or ",
                false => "",
            };
            format!(
                "no rule allows {principal} to {what}; {forgotten}ask an administrator for it: ringfence \
                 access grant {typed}"
            )
        }
    };
    let refusal = Refusal::new(Reason::PermissionDenied, message)
        .with("principal", principal)
        .with("verb", verb)
        .with("rule", needed);
    match names {
        Some(names) => refusal.with("names", names),
        None => refusal,
    }
}

/// The text as one argument of a shell, which would put the names of files in place of a `*`.
fn as_argument(text: &str) -> Cow<'_, str> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    match !text.is_empty() && text.chars().all(plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

/// Settings with a unit have it in their name on the wire.
fn settings_field(name: &str) -> String {
    let unit = match name {
        "ttl_min" | "ttl_max" | "idle_retention" => "_ms",
        "lease_api_factor" => "_per_mille",
        _ => "",
    };
    format!("settings.{name}{unit}")
}

fn open_too_old(seen: ClusterTime, now: ClusterTime) -> Refusal {
    let why = match seen.after(OPEN_AGE_MAX) <= now {
        true => format!(
            "the request saw cluster time {seen} and it is {now}, at most {OPEN_AGE_MAX} may lie \
             between: it may be a late duplicate; open with a new id"
        ),
        false => format!(
            "the request saw cluster time {seen}, and a session of the same container of the same \
             Pod gave a sign of life then or later: the request may be of a process that is over; \
             open with a new id and cluster time {now}"
        ),
    };
    Refusal::new(Reason::OpenTooOld, why)
        .with("seen", seen)
        .with("now", now)
}

fn session_expired(cause: Option<&SessionEnd>) -> Refusal {
    let why = match cause {
        Some(SessionEnd::Closed) => "the session was closed",
        Some(SessionEnd::Expired) => "the session was not kept alive in time and expired",
        Some(SessionEnd::Evicted { .. }) => "an operator evicted the session",
        Some(SessionEnd::PodEnded { .. }) => "the Pod that the session was bound to is over",
        None => "there is no such session: it has ended, or never was",
    };
    let message = format!("{why}; its leases are lost, stop working under them and open another");
    let refusal = Refusal::new(Reason::SessionExpired, message);
    match cause {
        Some(cause) => table::with_session_end(refusal, cause),
        None => refusal,
    }
}

fn unconfirmed(number: RequestNumber, lowest: RequestNumber) -> Refusal {
    let message = format!(
        "request {number} is too far above {lowest}, the lowest the session still waits for: at most \
         {UNCONFIRMED_MAX} may be unconfirmed, so this try was not carried out; say by `lowest` which \
         answers have come"
    );
    Refusal::new(Reason::Limit, message)
        .with("limit", "unconfirmed_requests")
        .with("max", UNCONFIRMED_MAX)
        .with("number", number)
        .with("lowest", lowest)
}

/// Tells all that is public of the holder; its data in hexadecimal digits, since it can be any
/// bytes.
fn held(holder: &Holder, mine: bool) -> Refusal {
    let Holder {
        session,
        identity,
        token,
        data,
    } = holder;
    let message = if mine {
        format!(
            "this session itself holds the lease with token {token}, by another request; go on \
             with that grant, or release it first"
        )
    } else {
        format!(
            "the lease is held by session {session} ({:?}) with token {token}; wait for it",
            identity.as_str()
        )
    };
    let refusal = Refusal::new(Reason::Held, message)
        .with("holder", session)
        .with("identity", identity)
        .with("token", token)
        .with("mine", mine);
    match data.as_bytes() {
        [] => refusal,
        bytes => refusal.with("data_hex", text::hex(bytes)),
    }
}

fn stale_token(name: &str, offered: FencingToken, current: Option<FencingToken>) -> Refusal {
    let message = match current {
        Some(current) => format!(
            "token {offered} was offered for lease {name}, but it is held with token {current}; that \
             grant has ended, stop working under it"
        ),
        // Also the answer about a lease that its caller may not read: it says nothing of others.
        None => format!(
            "token {offered} was offered for lease {name}, and no grant of the caller with that \
             token is in force; stop working under it"
        ),
    };
    let refusal = Refusal::new(Reason::StaleToken, message)
        .with("name", name)
        .with("offered", offered);
    match current {
        Some(current) => refusal.with("current", current),
        None => refusal,
    }
}

fn reached(limit: Limit) -> Refusal {
    let (name, max, what, remedy) = match limit {
        Limit::SessionLeases(max) => (
            "session_leases",
            u64::from(max),
            "leases and waits of a session",
            "release some",
        ),
        Limit::LeaseWaiters(max) => (
            "lease_waiters",
            u64::from(max),
            "waiters of a lease",
            "come back later",
        ),
        Limit::Leases(max) => (
            "leases",
            max,
            "remembered lease names of the cluster",
            "raise leases_max",
        ),
        Limit::Sessions(max) => (
            "sessions",
            max,
            "sessions of the cluster",
            "close some, or raise sessions_max",
        ),
        Limit::PrincipalSessions(max) => (
            "principal_sessions",
            max,
            "sessions of one principal",
            "close some, or raise the limit: ringfence access limits",
        ),
        Limit::PrincipalLeases(max) => (
            "principal_leases",
            max,
            "leases and waits of one principal",
            "release some, or raise the limit: ringfence access limits",
        ),
        Limit::Objects(max) => (
            "objects",
            max,
            "Lease objects in the cluster",
            "delete those that are not used any more",
        ),
        Limit::NamespaceObjects(max) => (
            "namespace_objects",
            max,
            "Lease objects in one namespace",
            "delete those that are not used any more",
        ),
        Limit::PrincipalObjects(max) => (
            "principal_objects",
            max,
            "Lease objects of one principal",
            "delete those that are not used any more",
        ),
    };
    let message = format!("there are as many {what} as there may be, {max}; {remedy}");
    Refusal::new(Reason::Limit, message)
        .with("limit", name)
        .with("max", max)
}
