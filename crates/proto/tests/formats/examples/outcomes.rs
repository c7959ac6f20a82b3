//! Outcomes and rejections.

use ringfence_core::*;

use super::*;

pub(crate) fn rejections() -> Vec<(&'static str, Rejection)> {
    let (name, offered) = (name("db/primary"), token(5));
    let (number, lowest) = (number(7), number(300));
    let holder = Holder {
        session: session(300),
        identity: identity(),
        token: offered,
        data: data(),
    };
    let setting = Settings {
        idle_retention: Millis(1),
        ..Settings::STANDARD
    }
    .check()
    .unwrap_err();
    let ttl = Rejection::InvalidTtl {
        offered: Millis(1),
        min: Millis(1_000),
        max: Millis(300_000),
    };
    let old = Rejection::OpenTooOld {
        seen: ClusterTime(1),
        now: ClusterTime(70_000),
    };
    let stale = |current| Rejection::StaleToken {
        name: name.clone(),
        offered,
        current,
    };
    let expired = |at: usize| Rejection::SessionExpired {
        cause: Some(session_ends().remove(at).1),
    };
    let mut rejections = vec![
        ("not_ready", Rejection::NotReady),
        (
            "already_formed",
            Rejection::AlreadyFormed { cluster: cluster() },
        ),
        (
            "token_floor_too_high",
            Rejection::TokenFloorTooHigh { offered: u64::MAX },
        ),
        ("invalid_setting", Rejection::InvalidSetting(setting)),
        ("stale_settings", Rejection::StaleSettings { set_at: 42 }),
        ("invalid_ttl", ttl),
        (
            "invalid_wait",
            Rejection::InvalidWait {
                offered: Millis(u64::MAX),
            },
        ),
        (
            "invalid_lock_delay",
            Rejection::InvalidLockDelay {
                offered: Millis(60_001),
            },
        ),
        ("open_too_old", old),
        ("open_id_used", Rejection::OpenIdUsed),
        ("session_unknown", Rejection::SessionExpired { cause: None }),
        ("session_closed", expired(0)),
        ("session_expired", expired(1)),
        ("session_evicted", expired(2)),
        ("wrong_secret", Rejection::WrongSecret),
        ("stale_request", Rejection::StaleRequest { number, lowest }),
        ("request_mismatch", Rejection::RequestMismatch { number }),
        ("request_voided", Rejection::RequestVoided),
        (
            "too_many_unconfirmed",
            Rejection::TooManyUnconfirmed {
                number: lowest,
                lowest: number,
            },
        ),
        (
            "held",
            Rejection::Held {
                holder: holder.clone(),
                mine: false,
            },
        ),
        ("held_by_itself", Rejection::Held { holder, mine: true }),
        ("queued", Rejection::Queued { waiters: 3 }),
        (
            "lock_delay",
            Rejection::LockDelay {
                remaining: Millis(1_500),
            },
        ),
        (
            "revoking",
            Rejection::Revoking {
                remaining: Millis(1_500),
            },
        ),
        (
            "quiet_time",
            Rejection::QuietTime {
                remaining: Millis(360_000),
            },
        ),
        ("stale_token", stale(Some(token(6)))),
        ("stale_token_of_a_free_lease", stale(None)),
        (
            "not_holder",
            Rejection::NotHolder {
                name: name.clone(),
                offered,
            },
        ),
        ("not_waiting", Rejection::NotWaiting { name }),
        (
            "limit_session_leases",
            Rejection::Limit(Limit::SessionLeases(4_096)),
        ),
        (
            "limit_lease_waiters",
            Rejection::Limit(Limit::LeaseWaiters(100_000)),
        ),
        ("limit_leases", Rejection::Limit(Limit::Leases(10_000_000))),
        (
            "limit_sessions",
            Rejection::Limit(Limit::Sessions(10_000_000)),
        ),
        ("tokens_exhausted", Rejection::TokensExhausted),
    ];
    rejections.extend(access::rejections());
    rejections.extend(objects::rejections());
    rejections
}

pub(crate) fn outcomes() -> Vec<(String, Outcome)> {
    let (name, token) = (name("db/primary"), token(5));
    let cause = Some(EndCause::Expired);
    let lost = LostGrant {
        name: name.clone(),
        token,
        cause: EndCause::Expired,
    };
    let opened = Opened {
        session: session(300),
        ttl: Millis(15_000),
        acquired: Some(Acquired::Waiting { name: name.clone() }),
        repeated: true,
    };
    let acquired = [
        ("acquired", Acquired::Granted(granted())),
        ("acquired_waiting", Acquired::Waiting { name: name.clone() }),
        (
            "acquired_ended",
            Acquired::Ended {
                name: name.clone(),
                token,
                cause,
            },
        ),
        (
            "acquired_ended_forgotten",
            Acquired::Ended {
                name: name.clone(),
                token,
                cause: None,
            },
        ),
        (
            "acquired_timed_out",
            Acquired::TimedOut { name: name.clone() },
        ),
        (
            "acquired_cancelled",
            Acquired::Cancelled {
                name: Some(name.clone()),
            },
        ),
        ("acquired_voided", Acquired::Cancelled { name: None }),
        ("acquired_refused", Acquired::Refused(Rejection::OpenIdUsed)),
    ];
    let cancelled = [
        ("cancelled", Cancelled::Removed),
        ("cancelled_granted", Cancelled::Granted { name, token }),
        ("cancelled_settled", Cancelled::Settled),
        ("cancelled_voided", Cancelled::Voided),
    ];
    let renewed = Renewed {
        time: ClusterTime(123_456),
        ended: [3, 9].map(session).into(),
        lost: vec![(session(4), vec![lost])],
    };
    let mut outcomes = vec![("done", Outcome::Done), ("opened", Outcome::Opened(opened))];
    outcomes.extend(acquired.map(|(kind, acquired)| (kind, Outcome::Acquired(acquired))));
    outcomes.extend(cancelled.map(|(kind, cancelled)| (kind, Outcome::Cancelled(cancelled))));
    outcomes.extend([
        ("released", Outcome::Released { token }),
        (
            "transferred",
            Outcome::Transferred {
                to: session(9),
                token,
            },
        ),
        (
            "closed",
            Outcome::Closed {
                cause: Some(SessionEnd::Closed),
            },
        ),
        ("closed_forgotten", Outcome::Closed { cause: None }),
        ("renewed", Outcome::Renewed(renewed)),
        ("node_id", Outcome::NodeId(42)),
        (
            "access_changed",
            Outcome::AccessChanged {
                set_at: 41,
                token: Some(41),
            },
        ),
    ]);
    outcomes.extend(objects::outcomes());
    let rejected = rejections()
        .into_iter()
        .map(|(kind, rejection)| (format!("rejected_{kind}"), Outcome::Rejected(rejection)));
    let named = outcomes
        .into_iter()
        .map(|(kind, outcome)| (kind.to_owned(), outcome));
    named.chain(rejected).collect()
}
