//! Any answer.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::*;

use super::*;

pub(crate) fn lost() -> BoxedStrategy<LostGrant> {
    (name(), token(), end_cause())
        .prop_map(|(name, token, cause)| LostGrant { name, token, cause })
        .boxed()
}

fn invalid_setting() -> BoxedStrategy<Rejection> {
    let names = vec![
        "ttl_min",
        "ttl_max",
        "idle_retention",
        "session_leases_max",
        "lease_waiters_max",
        "leases_max",
        "sessions_max",
        "lease_api_factor",
    ];
    let name = prop::sample::select(names);
    (name, count(), count(), count())
        .prop_map(|(name, offered, min, max)| {
            Rejection::InvalidSetting(InvalidSetting {
                name,
                offered,
                min,
                max,
            })
        })
        .boxed()
}

fn held() -> BoxedStrategy<Rejection> {
    (session(), identity(), token(), data(), any::<bool>())
        .prop_map(|(session, identity, token, data, mine)| Rejection::Held {
            holder: Holder {
                session,
                identity,
                token,
                data,
            },
            mine,
        })
        .boxed()
}

fn limit() -> BoxedStrategy<Limit> {
    prop_oneof![
        any::<u32>().prop_map(Limit::SessionLeases),
        any::<u32>().prop_map(Limit::LeaseWaiters),
        count().prop_map(Limit::Leases),
        count().prop_map(Limit::Sessions),
        count().prop_map(Limit::PrincipalSessions),
        count().prop_map(Limit::PrincipalLeases),
        count().prop_map(Limit::PrincipalObjects),
        count().prop_map(Limit::Objects),
        count().prop_map(Limit::NamespaceObjects),
    ]
    .boxed()
}

/// What is wrong with the request itself.
fn malformed() -> BoxedStrategy<Rejection> {
    prop_oneof![
        count().prop_map(|offered| Rejection::TokenFloorTooHigh { offered }),
        invalid_setting(),
        (millis(), millis(), millis()).prop_map(|(offered, min, max)| Rejection::InvalidTtl {
            offered,
            min,
            max
        }),
        millis().prop_map(|offered| Rejection::InvalidWait { offered }),
        millis().prop_map(|offered| Rejection::InvalidLockDelay { offered }),
        (time(), time()).prop_map(|(seen, now)| Rejection::OpenTooOld { seen, now }),
        (number(), number())
            .prop_map(|(number, lowest)| Rejection::StaleRequest { number, lowest }),
        number().prop_map(|number| Rejection::RequestMismatch { number }),
        Just(Rejection::RequestVoided),
        (number(), number())
            .prop_map(|(number, lowest)| Rejection::TooManyUnconfirmed { number, lowest }),
    ]
    .boxed()
}

/// What stands in the way of the request.
fn in_the_way() -> BoxedStrategy<Rejection> {
    prop_oneof![
        Just(Rejection::NotReady),
        cluster().prop_map(|cluster| Rejection::AlreadyFormed { cluster }),
        count().prop_map(|set_at| Rejection::StaleSettings { set_at }),
        Just(Rejection::OpenIdUsed),
        option::of(session_end()).prop_map(|cause| Rejection::SessionExpired { cause }),
        Just(Rejection::WrongSecret),
        held(),
        any::<u32>().prop_map(|waiters| Rejection::Queued { waiters }),
        millis().prop_map(|remaining| Rejection::LockDelay { remaining }),
        millis().prop_map(|remaining| Rejection::Revoking { remaining }),
        millis().prop_map(|remaining| Rejection::QuietTime { remaining }),
        (name(), token(), option::of(token())).prop_map(|(name, offered, current)| {
            Rejection::StaleToken {
                name,
                offered,
                current,
            }
        }),
        (name(), token()).prop_map(|(name, offered)| Rejection::NotHolder { name, offered }),
        name().prop_map(|name| Rejection::NotWaiting { name }),
        limit().prop_map(Rejection::Limit),
        Just(Rejection::TokensExhausted),
    ]
    .boxed()
}

pub(crate) fn rejection() -> BoxedStrategy<Rejection> {
    prop_oneof![
        malformed(),
        in_the_way(),
        access::denied(),
        objects::refused()
    ]
    .boxed()
}

pub(crate) fn acquired() -> BoxedStrategy<Acquired> {
    prop_oneof![
        granted().prop_map(Acquired::Granted),
        name().prop_map(|name| Acquired::Waiting { name }),
        (name(), token(), option::of(end_cause()))
            .prop_map(|(name, token, cause)| Acquired::Ended { name, token, cause }),
        name().prop_map(|name| Acquired::TimedOut { name }),
        option::of(name()).prop_map(|name| Acquired::Cancelled { name }),
        rejection().prop_map(Acquired::Refused),
    ]
    .boxed()
}

pub(crate) fn cancelled() -> BoxedStrategy<Cancelled> {
    prop_oneof![
        Just(Cancelled::Removed),
        (name(), token()).prop_map(|(name, token)| Cancelled::Granted { name, token }),
        Just(Cancelled::Settled),
        Just(Cancelled::Voided),
    ]
    .boxed()
}

pub(crate) fn outcome() -> BoxedStrategy<Outcome> {
    let opened = (session(), millis(), option::of(acquired()), any::<bool>()).prop_map(
        |(session, ttl, acquired, repeated)| Opened {
            session,
            ttl,
            acquired,
            repeated,
        },
    );
    let losses = vec((session(), vec(lost(), 0..4)), 0..4);
    let renewed =
        (time(), sessions(), losses).prop_map(|(time, ended, lost)| Renewed { time, ended, lost });
    prop_oneof![
        Just(Outcome::Done),
        opened.prop_map(Outcome::Opened),
        acquired().prop_map(Outcome::Acquired),
        cancelled().prop_map(Outcome::Cancelled),
        token().prop_map(|token| Outcome::Released { token }),
        (session(), token()).prop_map(|(to, token)| Outcome::Transferred { to, token }),
        option::of(session_end()).prop_map(|cause| Outcome::Closed { cause }),
        renewed.prop_map(Outcome::Renewed),
        count().prop_map(Outcome::NodeId),
        (count(), option::of(1..=u64::MAX))
            .prop_map(|(set_at, token)| Outcome::AccessChanged { set_at, token }),
        objects::written().prop_map(|written| Outcome::Object(Box::new(written))),
        rejection().prop_map(Outcome::Rejected),
    ]
    .boxed()
}
