//! Commands.

use ringfence_core::*;

use super::*;

fn ask_lease(raw: &str) -> Acquire {
    Acquire {
        name: name(raw),
        wait: None,
        data: data(),
        lock_delay: Millis(2_000),
    }
}

fn request(ask: Ask) -> Command {
    let secret = Secret::new(SECRET);
    Command::Request(Request {
        session: session(300),
        secret,
        number: number(7),
        lowest: number(5),
        ask,
    })
}

/// A plain acquire, without data.
pub(crate) fn acquire(raw: &str) -> Command {
    let acquire = Acquire {
        name: name(raw),
        wait: None,
        data: HolderData::default(),
        lock_delay: Millis(0),
    };
    request(Ask::Acquire(acquire))
}

pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let (operator, reason) = by_hand();
    let (secret, settings) = (Secret::new(SECRET), Settings::STANDARD);
    let waiting = Acquire {
        wait: Some(Millis(0)),
        ..ask_lease("db/primary")
    };
    let open = Open {
        id: OpenId::new(*b"this open's name"),
        secret,
        seen: Some(ClusterTime(0)),
        ttl: Millis(15_000),
        identity: identity(),
        acquire: Some(ask_lease("db/primary")),
    };
    let for_pod = OpenForPod {
        id: OpenId::new(*b"this open's name"),
        secret,
        seen: Some(ClusterTime(7)),
        identity: identity(),
        pod: pod(),
    };
    let (lease, mark) = (name("db/primary"), token(1_700_000_000_000_001));
    let renew = Renew {
        sessions: [3, 4, 5, 130, 131, 70_000].map(session).into(),
        acknowledged: vec![(session(4), mark)],
    };
    let release = Ask::Release {
        name: lease.clone(),
        token: mark,
        close: true,
    };
    let transfer = Ask::Transfer {
        name: lease.clone(),
        token: mark,
        to: Some(session(9)),
    };
    let form = Form {
        cluster: cluster(),
        token_floor: Some(0),
        settings,
        mode: Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    };
    let forming = Form {
        mode: Mode::Enforced,
        ..form.clone()
    };
    let mut commands = vec![
        ("form", Command::Form(form)),
        ("form_with_a_mode", Command::Form(forming)),
        (
            "term_start",
            Command::TermStart {
                unix_seconds: Some(1_700_000_000),
            },
        ),
        (
            "term_start_without_clock",
            Command::TermStart { unix_seconds: None },
        ),
        ("tick", Command::Tick),
        (
            "configure",
            Command::Configure(Configure {
                based_on: 1,
                settings,
            }),
        ),
        (
            "configure_lease_api_factor",
            Command::Configure(Configure {
                based_on: 1,
                settings: Settings {
                    lease_api_factor: 2_000,
                    ..Settings::STANDARD
                },
            }),
        ),
        ("open", Command::Open(open)),
        ("acquire", request(Ask::Acquire(ask_lease("db/primary")))),
        ("acquire_waiting", request(Ask::Acquire(waiting))),
        ("cancel", request(Ask::Cancel { number: number(6) })),
        ("release", request(release)),
        ("transfer", request(transfer)),
        (
            "close",
            Command::Close {
                session: session(300),
                secret,
            },
        ),
        ("renew", Command::Renew(renew)),
        (
            "revoke",
            Command::Revoke(Revoke {
                name: lease,
                token: mark,
                now: true,
                reason,
                operator,
            }),
        ),
        (
            "evict",
            Command::Evict(Evict {
                session: session(300),
                reason: "left the team".into(),
                operator: "carol".into(),
            }),
        ),
        ("draw_node_id", Command::DrawNodeId),
        ("open_for_pod", Command::OpenForPod(for_pod)),
        (
            "pod_ended",
            Command::PodEnded(PodEnded {
                uid: pod().uid().clone(),
                seen: PodSeen::Failed,
            }),
        ),
        ("raise_level", Command::RaiseLevel { level: 3 }),
    ];
    commands.extend(access::commands());
    commands.extend(objects::commands());
    commands.extend(restored::commands());
    commands
}
