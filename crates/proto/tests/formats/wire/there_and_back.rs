//! What one side says, the other understands.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::*;
use ringfence_proto::v1::client_frame::Body;
use ringfence_proto::v1::watch_event;
use ringfence_proto::wire::*;
use ringfence_proto::{Refusal, v1};

use crate::arbitrary;

fn lease_view() -> impl Strategy<Value = LeaseView> {
    let times = (
        arbitrary::millis(),
        arbitrary::millis(),
        arbitrary::millis(),
    );
    let floor = option::of(arbitrary::token());
    (
        arbitrary::name(),
        option::of(arbitrary::granted()),
        times,
        any::<u32>(),
        floor,
    )
        .prop_map(
            |(name, holder, (ttl, remaining, blocked), waiters, floor)| LeaseView {
                name,
                holder,
                ttl,
                remaining,
                waiters,
                floor,
                blocked,
            },
        )
}

fn session_view() -> impl Strategy<Value = SessionView> {
    let times = (arbitrary::millis(), arbitrary::millis());
    let leases = vec((arbitrary::name(), arbitrary::token()), 0..5);
    (
        arbitrary::session(),
        arbitrary::identity(),
        times,
        leases,
        (any::<u32>(), option::of(arbitrary::pod())),
    )
        .prop_map(
            |(session, identity, (ttl, remaining), leases, (waits, pod))| SessionView {
                session,
                identity,
                ttl,
                remaining,
                leases,
                waits,
                pod,
            },
        )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Current),
        arbitrary::token().prop_map(|newest| Verdict::Superseded { newest }),
        Just(Verdict::Ended),
        Just(Verdict::Unknown),
    ]
}

/// A request as the edge lets it in: within the limits of time, and with a lowest number that is
/// not above its own. What is beyond them is refused there, which is tested in `refused.rs`; here it
/// would only make the round trip of everything else rarer.
fn within_limits(mut request: Request) -> Request {
    request.lowest = request.lowest.min(request.number);
    if let Ask::Acquire(acquire) = &mut request.ask {
        *acquire = short(acquire.clone());
    }
    request
}

fn short(acquire: Acquire) -> Acquire {
    Acquire {
        wait: acquire.wait.map(|wait| wait.min(WAIT_MAX)),
        lock_delay: acquire.lock_delay.min(LOCK_DELAY_MAX),
        ..acquire
    }
}

proptest! {
    #[test]
    fn a_request(request in arbitrary::request()) {
        let request = within_limits(request);
        let body = Some(request_to_wire(&request));
        let asked = frame_from_wire(body);
        prop_assert_eq!(asked, Ok(Asked::Command(Command::Request(request))));
    }

    #[test]
    fn an_open(open in arbitrary::open()) {
        // A wait as long as the session is refused, see `refused.rs`.
        let shorter = |acquire: Acquire| {
            let acquire = short(acquire);
            Acquire { wait: acquire.wait.filter(|wait| *wait < open.ttl), ..acquire }
        };
        let open = Open { acquire: open.acquire.clone().map(shorter), ..open };
        let body = match acquire_to_wire(&open) {
            Some(acquire) => Body::Acquire(acquire),
            None => Body::Open(open_to_wire(&open)),
        };
        prop_assert_eq!(frame_from_wire(Some(body)), Ok(Asked::Command(Command::Open(open))));
    }

    #[test]
    fn a_grant(granted in arbitrary::granted()) {
        prop_assert_eq!(grant_from_wire(grant_to_wire(&granted)), Ok(granted));
    }

    #[test]
    fn the_end_of_a_grant(cause in arbitrary::end_cause()) {
        prop_assert_eq!(end_cause_from_wire(end_cause_to_wire(&cause)), Ok(cause));
    }

    #[test]
    fn the_end_of_a_session(cause in arbitrary::session_end()) {
        prop_assert_eq!(session_end_from_wire(session_end_to_wire(&cause)), Ok(cause));
    }

    #[test]
    fn a_lost_grant(lost in arbitrary::lost()) {
        prop_assert_eq!(lost_grant_from_wire(lost_grant_to_wire(&lost)), Ok(lost));
    }

    #[test]
    fn the_answer_to_a_cancel(cancelled in arbitrary::cancelled(), time in arbitrary::time()) {
        let wire = cancelled_to_wire(&cancelled, time);
        prop_assert_eq!(wire.cluster_time_ms, time.0);
        prop_assert_eq!(cancelled_from_wire(&wire), Ok(cancelled));
    }

    #[test]
    fn a_lease(lease in lease_view()) {
        prop_assert_eq!(lease_from_wire(lease_to_wire(&lease)), Ok(lease));
    }

    #[test]
    fn a_session(session in session_view()) {
        prop_assert_eq!(session_from_wire(session_to_wire(&session)), Ok(session));
    }

    #[test]
    fn a_verdict(verdict in verdict()) {
        let at = read_point_to_wire(7, ClusterTime(8), Duration::from_micros(1));
        prop_assert_eq!(at.age_ms, 1);
        prop_assert_eq!(verdict_from_wire(&verdict_to_wire(verdict, at)), Ok(verdict));
    }

    #[test]
    fn the_settings(settings in arbitrary::settings(), based_on in any::<u64>()) {
        let request =
            v1::ConfigureRequest { settings: Some(settings_to_wire(&settings)), based_on, change: None };
        prop_assert_eq!(configure_from_wire(&request), Ok(Configure { based_on, settings }));
    }

    #[test]
    fn a_floor(name in arbitrary::name(), token in arbitrary::token()) {
        prop_assert_eq!(floor_from_wire(&floor_to_wire(&name, token)), Ok((name, token)));
    }

    #[test]
    fn a_position(
        cluster in arbitrary::cluster(),
        index in any::<u64>(),
        n in any::<u32>(),
        term in prop::option::of(1..u64::MAX),
    ) {
        let position = WirePosition { cluster, index, n, term };
        prop_assert_eq!(position_from_wire(&position_to_wire(position)), Ok(position));
    }

    #[test]
    fn a_handle(session in arbitrary::session(), secret in arbitrary::secret()) {
        let handle = session_handle_to_wire(session, &secret);
        prop_assert_eq!(session_handle_from_wire(Some(handle)), Ok((session, secret)));
    }

    #[test]
    fn the_answer_to_an_open(session in arbitrary::session(), ttl in arbitrary::millis()) {
        let opened = Opened { session, ttl, acquired: None, repeated: false };
        let cluster = ClusterId::new([7; 16]);
        let wire = opened_to_wire(&opened, ClusterTime(9), &cluster);
        prop_assert_eq!(opened_from_wire(&wire), Ok((session, ttl)));
        prop_assert_eq!(cluster_id_from_wire(&wire.cluster_id), Ok(Some(cluster)));
    }

    #[test]
    fn an_acquire_is_answered_by_a_grant_or_a_refusal(acquired in arbitrary::acquired()) {
        match acquired_to_wire(&acquired) {
            Ok(grant) => {
                prop_assert_eq!(grant_from_wire(grant).map(Acquired::Granted), Ok(acquired));
            }
            Err(refusal) => {
                prop_assert!(!matches!(acquired, Acquired::Granted(_)));
                prop_assert_eq!(Refusal::from_wire(refusal.clone().into()), Some(refusal));
            }
        }
    }

    #[test]
    fn watchers_are_told_of_grants_and_ends_only(event in arbitrary::event()) {
        let position = v1::Position { index: 5, ..Default::default() };
        let told = event_to_wire(&event, position.clone());
        let is_public = matches!(event, Event::Granted(_) | Event::Ended { .. });
        prop_assert_eq!(told.is_some(), is_public);
        if let Some(told) = told {
            prop_assert_eq!(told.position, Some(position));
            let granted = matches!(told.kind, Some(watch_event::Kind::Granted(_)));
            prop_assert_eq!(granted, matches!(event, Event::Granted(_)));
        }
    }

    #[test]
    fn keep_alives(
        sessions in vec((arbitrary::session(), arbitrary::secret()), 0..20),
        acknowledged in vec((arbitrary::session(), arbitrary::token()), 0..20),
    ) {
        let handles = sessions.iter().map(|(session, secret)| {
            session_handle_to_wire(*session, secret)
        });
        let losses = acknowledged.iter().map(|(session, token)| v1::Acknowledged {
            session: session.get(),
            token: token.get(),
        });
        let request = v1::KeepAliveRequest {
            id: 9,
            sessions: handles.collect(),
            acknowledged: losses.collect(),
        };
        let asked = frame_from_wire(Some(Body::KeepAlive(request)));
        let keep_alive = KeepAlive { sessions, acknowledged, malformed: Vec::new() };
        prop_assert_eq!(asked, Ok(Asked::KeepAlive { id: 9, keep_alive }));
    }
}

#[test]
fn the_answer_to_keep_alives_tells_ends_and_losses() {
    let session = |raw| SessionId::new(raw).unwrap();
    let cause = Some(SessionEnd::Expired);
    let ended = [
        (session(1), Rejection::SessionExpired { cause }),
        (session(2), Rejection::WrongSecret),
    ];
    let grant = LostGrant {
        name: LeaseName::parse("db").unwrap(),
        token: FencingToken::new(5).unwrap(),
        cause: EndCause::Expired,
    };
    let lost = [(session(3), vec![grant.clone()])];

    let wire = kept_alive_to_wire(9, ClusterTime(77), &ended, &lost, &[]);

    assert_eq!((wire.id, wire.cluster_time_ms, wire.refusal), (9, 77, None));
    assert_eq!(wire.ended[0].reason(), v1::Reason::SessionExpired);
    let told = wire.ended[0].cause.clone().unwrap();
    assert_eq!(session_end_from_wire(told), Ok(SessionEnd::Expired));
    assert_eq!(
        (wire.ended[1].session, wire.ended[1].reason()),
        (2, v1::Reason::WrongSecret)
    );
    assert_eq!(wire.lost[0].session, 3);
    assert_eq!(
        lost_grant_from_wire(wire.lost[0].grants[0].clone()),
        Ok(grant)
    );
}
