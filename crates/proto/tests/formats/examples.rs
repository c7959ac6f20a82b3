//! One value of each kind, the same at every run.

use ringfence_core::snapshot::*;
use ringfence_core::*;

/// The secret of all examples. No refusal and no `Debug` may show it.
pub(crate) const SECRET: [u8; 16] = *b"\xf0\xe1\xd2\xc3sixteen byte";

pub(crate) fn name(raw: &str) -> LeaseName {
    LeaseName::parse(raw).unwrap()
}

pub(crate) fn token(raw: u64) -> FencingToken {
    FencingToken::new(raw).unwrap()
}

pub(crate) fn session(raw: u64) -> SessionId {
    SessionId::new(raw).unwrap()
}

pub(crate) fn number(raw: u64) -> RequestNumber {
    RequestNumber::new(raw).unwrap()
}

fn identity() -> Identity {
    Identity::parse("alice@host-1").unwrap()
}

fn data() -> HolderData {
    HolderData::new(b"10.0.0.7:80").unwrap()
}

fn cluster() -> ClusterId {
    ClusterId::new(*b"the cluster's id")
}

fn by_hand() -> (String, String) {
    ("carol".into(), "disk full".into())
}

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
    };
    vec![
        ("form", Command::Form(form)),
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
    ]
}

fn granted() -> Granted {
    Granted {
        name: name("db/primary"),
        token: token(1_700_000_000_000_001),
        session: session(300),
        identity: identity(),
        data: data(),
        request: number(7),
        index: 42,
        since: WallTime(1_700_000_000_123),
    }
}

pub(crate) fn end_causes() -> Vec<(&'static str, EndCause)> {
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
    ]
}

fn session_ends() -> Vec<(&'static str, SessionEnd)> {
    let (operator, reason) = by_hand();
    vec![
        ("closed", SessionEnd::Closed),
        ("expired", SessionEnd::Expired),
        ("evicted", SessionEnd::Evicted { operator, reason }),
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
    let unconfirmed = Rejection::TooManyUnconfirmed {
        number: lowest,
        lowest: number,
    };
    let stale = |current| Rejection::StaleToken {
        name: name.clone(),
        offered,
        current,
    };
    let expired = |at: usize| Rejection::SessionExpired {
        cause: Some(session_ends().remove(at).1),
    };
    vec![
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
    ]
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
    ]);
    let rejected = rejections()
        .into_iter()
        .map(|(kind, rejection)| (format!("rejected_{kind}"), Outcome::Rejected(rejection)));
    let named = outcomes
        .into_iter()
        .map(|(kind, outcome)| (kind.to_owned(), outcome));
    named.chain(rejected).collect()
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let (lease, mark) = (name("db/primary"), token(5));
    let header = Header {
        cluster: Some(cluster()),
        token_floor: None,
        settings: Settings::STANDARD,
        settings_set_at: 1,
        index: 42,
        term: 3,
        term_start: ClusterTime(100),
        time: ClusterTime(123_456),
        wall: WallTime(1_700_000_000_123),
        counter: 1_700_000_000_000_001,
        last_token: 1_700_000_000_000_001,
        next_session: 301,
        next_place: 8,
        forgotten: Some(mark),
        quiet_until: ClusterTime(0),
        unserved: vec![lease.clone(), name("jobs/nightly")],
    };
    let secret = Secret::new(SECRET);
    let open = OpenId::new(*b"this open's name");
    let ended = EndedRecord {
        session: session(299),
        open,
        secret,
        cause: SessionEnd::Expired,
        at: ClusterTime(9_000),
    };
    let living = SessionRecord {
        id: session(300),
        open,
        secret,
        identity: identity(),
        ttl: Millis(15_000),
        seen: ClusterTime(120_000),
        armed: ClusterTime(135_000),
        lowest: number(5),
        answers: answers(),
        lost: vec![LostGrant {
            name: lease.clone(),
            token: mark,
            cause: EndCause::Expired,
        }],
    };
    let grant = GrantRecord {
        token: mark,
        session: session(300),
        request: number(7),
        data: data(),
        lock_delay: Millis(2_000),
        index: 42,
        since: WallTime(1_700_000_000_123),
    };
    let waiter = WaiterRecord {
        place: 7,
        session: session(9),
        request: number(1),
        until: ClusterTime(200_000),
        data: data(),
        lock_delay: Millis(0),
    };
    let revoked = RevokedHolder {
        session: session(300),
        token: mark,
        until: ClusterTime(140_000),
    };
    let held = LeaseRecord {
        name: lease,
        floor: Some(mark),
        grant: Some(grant),
        blocked: Some(Block {
            lock_delay_until: ClusterTime(1),
            revoked: Some(revoked),
        }),
        idle_since: ClusterTime(2),
        armed: Some(ClusterTime(200_000)),
        queue: vec![waiter],
    };
    let free = LeaseRecord {
        name: name("jobs/nightly"),
        floor: None,
        grant: None,
        blocked: None,
        idle_since: ClusterTime(2),
        armed: None,
        queue: vec![],
    };
    vec![
        ("header", Record::Header(header)),
        ("session", Record::Session(living)),
        ("lease_held", Record::Lease(held)),
        ("lease_free", Record::Lease(free)),
        ("ended", Record::Ended(ended)),
    ]
}

fn answers() -> Vec<Remembered> {
    let (name, token) = (name("db/primary"), token(5));
    let answers = [
        Answer::Waiting { name: name.clone() },
        Answer::Granted {
            name: name.clone(),
            token,
        },
        Answer::Ended {
            name: name.clone(),
            token,
            cause: EndCause::Expired,
        },
        Answer::TimedOut { name: name.clone() },
        Answer::Cancelled {
            name: Some(name.clone()),
        },
        Answer::Cancelled { name: None },
        Answer::Released { token },
        Answer::Transferred {
            to: session(9),
            token,
        },
        Answer::CancelDone(Cancelled::Granted { name, token }),
        Answer::Refused(Rejection::Queued { waiters: 3 }),
    ];
    let remembered = (5..).zip(answers).map(|(at, answer)| Remembered {
        number: number(at),
        fingerprint: 0x0123_4567_89ab_cdef,
        answer,
    });
    remembered.collect()
}
