//! Events and causes.

use ringfence_core::*;

use super::*;

fn end_causes() -> Vec<(&'static str, EndCause)> {
    let (operator, reason) = by_hand();
    let evicted = EndCause::Evicted {
        operator: operator.clone(),
        reason: reason.clone(),
    };
    vec![
        ("released", EndCause::Released),
        ("expired", EndCause::Expired),
        ("closed", EndCause::Closed),
        ("revoked", EndCause::Revoked { operator, reason }),
        ("evicted", evicted),
        ("transferred", EndCause::Transferred { to: session(9) }),
        (
            "pod_ended",
            EndCause::PodEnded {
                uid: pod().uid().clone(),
                seen: PodSeen::Succeeded,
            },
        ),
    ]
}

pub(crate) fn session_ends() -> Vec<(&'static str, SessionEnd)> {
    let (operator, reason) = by_hand();
    vec![
        ("closed", SessionEnd::Closed),
        ("expired", SessionEnd::Expired),
        ("evicted", SessionEnd::Evicted { operator, reason }),
        (
            "pod_ended",
            SessionEnd::PodEnded {
                uid: pod().uid().clone(),
                seen: PodSeen::NodeOutOfService,
            },
        ),
    ]
}

pub(crate) fn events() -> Vec<(String, Event)> {
    let mut events = vec![("granted".into(), Event::Granted(granted()))];
    for (kind, cause) in end_causes() {
        let ended = Event::Ended {
            name: name("db/primary"),
            token: token(5),
            session: session(300),
            identity: identity(),
            cause,
            at: WallTime(1_700_000_000_456),
        };
        events.push((format!("ended_{kind}"), ended));
    }
    let ends = [
        ("timed_out", WaitEnd::TimedOut),
        ("cancelled", WaitEnd::Cancelled),
        ("session_ended", WaitEnd::SessionEnded),
        ("refused", WaitEnd::Refused),
    ];
    for (kind, why) in ends {
        let (name, session, request) = (name("db/primary"), session(300), number(7));
        events.push((
            format!("wait_{kind}"),
            Event::WaitEnded {
                name,
                session,
                request,
                why,
            },
        ));
    }
    events.push((
        "session_opened".into(),
        Event::SessionOpened {
            session: session(300),
        },
    ));
    for (kind, cause) in session_ends() {
        let ended = Event::SessionEnded {
            session: session(300),
            cause,
        };
        events.push((format!("session_{kind}"), ended));
    }
    let forgotten = Event::Forgotten {
        name: name("db/primary"),
        floor: token(5),
    };
    events.push(("forgotten".into(), forgotten));
    events
}
