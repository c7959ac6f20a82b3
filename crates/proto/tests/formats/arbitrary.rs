//! Any value of the core's types.

mod access;
mod backup;
mod objects;
mod outcome;
mod restored;
mod snapshot;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::*;
use ringfence_proto::record::RECORD_VERSION;

pub(crate) use backup::backup_record;
pub(crate) use outcome::{acquired, cancelled, lost, outcome, rejection};
pub(crate) use snapshot::record;

/// Small and large numbers, and the edges.
pub(crate) fn count() -> BoxedStrategy<u64> {
    prop_oneof![0..200u64, any::<u64>(), Just(0), Just(u64::MAX)].boxed()
}

pub(crate) fn name() -> BoxedStrategy<LeaseName> {
    "[a-zA-Z0-9_~:@-]{1,20}(/[a-z0-9_]{1,9}){0,3}"
        .prop_map(|raw| LeaseName::parse(&raw).unwrap())
        .boxed()
}

pub(crate) fn identity() -> BoxedStrategy<Identity> {
    "\\PC{0,40}"
        .prop_map(|raw| Identity::parse(&raw).unwrap())
        .boxed()
}

pub(crate) fn data() -> BoxedStrategy<HolderData> {
    prop_oneof![Just(vec![]), vec(any::<u8>(), 1..=HOLDER_DATA_BYTES_MAX)]
        .prop_map(|bytes| HolderData::new(&bytes).unwrap())
        .boxed()
}

pub(crate) fn token() -> BoxedStrategy<FencingToken> {
    prop_oneof![1..200u64, 1..=FencingToken::MAX, Just(FencingToken::MAX)]
        .prop_map(|raw| FencingToken::new(raw).unwrap())
        .boxed()
}

pub(crate) fn session() -> BoxedStrategy<SessionId> {
    count()
        .prop_map(|raw| SessionId::new(raw.max(1)).unwrap())
        .boxed()
}

pub(crate) fn number() -> BoxedStrategy<RequestNumber> {
    count()
        .prop_map(|raw| RequestNumber::new(raw.max(1)).unwrap())
        .boxed()
}

pub(crate) fn millis() -> BoxedStrategy<Millis> {
    count().prop_map(Millis).boxed()
}

pub(crate) fn time() -> BoxedStrategy<ClusterTime> {
    count().prop_map(ClusterTime).boxed()
}

pub(crate) fn wall() -> BoxedStrategy<WallTime> {
    count().prop_map(WallTime).boxed()
}

/// 16 bytes, some of them nothing but zeros.
pub(crate) fn sixteen() -> BoxedStrategy<[u8; 16]> {
    prop_oneof![any::<[u8; 16]>(), Just([0; 16])].boxed()
}

pub(crate) fn cluster() -> BoxedStrategy<ClusterId> {
    sixteen().prop_map(ClusterId::new).boxed()
}

pub(crate) fn open_id() -> BoxedStrategy<OpenId> {
    sixteen().prop_map(OpenId::new).boxed()
}

pub(crate) fn secret() -> BoxedStrategy<Secret> {
    sixteen().prop_map(Secret::new).boxed()
}

/// Texts of operators, also longer ones than the edge lets in.
pub(crate) fn text() -> BoxedStrategy<String> {
    "\\PC{0,300}".boxed()
}

pub(crate) fn settings() -> BoxedStrategy<Settings> {
    let counts = (any::<u32>(), any::<u32>(), count(), count());
    let times = (millis(), millis(), millis());
    (times, counts, any::<u32>())
        .prop_map(|(times, counts, lease_api_factor)| {
            let (ttl_min, ttl_max, idle_retention) = times;
            let (session_leases_max, lease_waiters_max, leases_max, sessions_max) = counts;
            Settings {
                ttl_min,
                ttl_max,
                idle_retention,
                session_leases_max,
                lease_waiters_max,
                leases_max,
                sessions_max,
                lease_api_factor,
            }
        })
        .boxed()
}

pub(crate) fn pod() -> BoxedStrategy<Pod> {
    (
        "[a-z0-9-]{1,63}",
        "[a-z0-9.-]{1,253}",
        "[a-f0-9-]{1,64}",
        "[a-z0-9-]{0,63}",
    )
        .prop_map(|(namespace, name, uid, container)| {
            let text = PodText {
                namespace: &namespace,
                name: &name,
                uid: &uid,
                container: &container,
            };
            Pod::parse(text).unwrap()
        })
        .boxed()
}

fn pod_seen() -> BoxedStrategy<PodSeen> {
    prop_oneof![
        Just(PodSeen::Gone),
        Just(PodSeen::Succeeded),
        Just(PodSeen::Failed),
        Just(PodSeen::NodeOutOfService),
        Just(PodSeen::Restarted),
    ]
    .boxed()
}

pub(crate) fn end_cause() -> BoxedStrategy<EndCause> {
    prop_oneof![
        Just(EndCause::Released),
        Just(EndCause::Expired),
        Just(EndCause::Closed),
        (text(), text()).prop_map(|(operator, reason)| EndCause::Revoked { operator, reason }),
        (text(), text()).prop_map(|(operator, reason)| EndCause::Evicted { operator, reason }),
        session().prop_map(|to| EndCause::Transferred { to }),
        (pod(), pod_seen()).prop_map(|(pod, seen)| {
            let uid = pod.uid().clone();
            EndCause::PodEnded { uid, seen }
        }),
    ]
    .boxed()
}

pub(crate) fn session_end() -> BoxedStrategy<SessionEnd> {
    prop_oneof![
        Just(SessionEnd::Closed),
        Just(SessionEnd::Expired),
        (text(), text()).prop_map(|(operator, reason)| SessionEnd::Evicted { operator, reason }),
        (pod(), pod_seen()).prop_map(|(pod, seen)| {
            let uid = pod.uid().clone();
            SessionEnd::PodEnded { uid, seen }
        }),
    ]
    .boxed()
}

pub(crate) fn granted() -> BoxedStrategy<Granted> {
    (
        name(),
        token(),
        session(),
        identity(),
        data(),
        number(),
        count(),
        wall(),
    )
        .prop_map(
            |(name, token, session, identity, data, request, index, since)| Granted {
                name,
                token,
                session,
                identity,
                data,
                request,
                index,
                since,
            },
        )
        .boxed()
}

pub(crate) fn event() -> BoxedStrategy<Event> {
    let why = prop_oneof![
        Just(WaitEnd::TimedOut),
        Just(WaitEnd::Cancelled),
        Just(WaitEnd::SessionEnded),
        Just(WaitEnd::Refused)
    ];
    prop_oneof![
        granted().prop_map(Event::Granted),
        (name(), token(), session(), identity(), end_cause(), wall()).prop_map(
            |(name, token, session, identity, cause, at)| Event::Ended {
                name,
                token,
                session,
                identity,
                cause,
                at
            }
        ),
        (name(), session(), number(), why).prop_map(|(name, session, request, why)| {
            Event::WaitEnded {
                name,
                session,
                request,
                why,
            }
        }),
        session().prop_map(|session| Event::SessionOpened { session }),
        (session(), session_end())
            .prop_map(|(session, cause)| Event::SessionEnded { session, cause }),
        (name(), token()).prop_map(|(name, floor)| Event::Forgotten { name, floor }),
    ]
    .boxed()
}

pub(crate) fn acquire() -> BoxedStrategy<Acquire> {
    (name(), option::of(millis()), data(), millis())
        .prop_map(|(name, wait, data, lock_delay)| Acquire {
            name,
            wait,
            data,
            lock_delay,
        })
        .boxed()
}

pub(crate) fn open() -> BoxedStrategy<Open> {
    let ids = (open_id(), secret());
    (
        ids,
        option::of(time()),
        millis(),
        identity(),
        option::of(acquire()),
    )
        .prop_map(|((id, secret), seen, ttl, identity, acquire)| Open {
            id,
            secret,
            seen,
            ttl,
            identity,
            acquire,
        })
        .boxed()
}

pub(crate) fn ask() -> BoxedStrategy<Ask> {
    prop_oneof![
        acquire().prop_map(Ask::Acquire),
        number().prop_map(|number| Ask::Cancel { number }),
        (name(), token(), any::<bool>()).prop_map(|(name, token, close)| Ask::Release {
            name,
            token,
            close
        }),
        (name(), token(), option::of(session())).prop_map(|(name, token, to)| Ask::Transfer {
            name,
            token,
            to
        }),
    ]
    .boxed()
}

pub(crate) fn request() -> BoxedStrategy<Request> {
    (session(), secret(), number(), number(), ask())
        .prop_map(|(session, secret, number, lowest, ask)| Request {
            session,
            secret,
            number,
            lowest,
            ask,
        })
        .boxed()
}

pub(crate) fn revoke() -> BoxedStrategy<Revoke> {
    (name(), token(), any::<bool>(), text(), text())
        .prop_map(|(name, token, now, reason, operator)| Revoke {
            name,
            token,
            now,
            reason,
            operator,
        })
        .boxed()
}

/// Session numbers in any order, and in the order that a batch has.
pub(crate) fn sessions() -> BoxedStrategy<Vec<SessionId>> {
    let sorted = vec(session(), 0..300).prop_map(|mut sessions| {
        sessions.sort();
        sessions.dedup();
        sessions
    });
    prop_oneof![vec(session(), 0..20), sorted].boxed()
}

pub(crate) fn command() -> BoxedStrategy<Command> {
    prop_oneof![
        4 => bare_command(),
        1 => access::called(bare_command()),
    ]
    .boxed()
}

fn bare_command() -> BoxedStrategy<Command> {
    let mode = prop_oneof![
        Just(Mode::Off),
        Just(Mode::Permissive),
        Just(Mode::Enforced)
    ];
    let past = (count(), option::of(restored::restored()));
    let form = (cluster(), option::of(count()), settings(), mode, past).prop_map(
        |(cluster, token_floor, settings, mode, (quiet_time, restored))| Form {
            cluster,
            token_floor,
            settings,
            mode,
            quiet_time: Millis(quiet_time),
            restored,
        },
    );
    let renew =
        (sessions(), vec((session(), token()), 0..20)).prop_map(|(sessions, acknowledged)| Renew {
            sessions,
            acknowledged,
        });
    let evict = (session(), text(), text()).prop_map(|(session, reason, operator)| Evict {
        session,
        reason,
        operator,
    });
    prop_oneof![
        form.prop_map(Command::Form),
        option::of(count()).prop_map(|unix_seconds| Command::TermStart { unix_seconds }),
        Just(Command::Tick),
        (count(), settings())
            .prop_map(|(based_on, settings)| Command::Configure(Configure { based_on, settings })),
        open().prop_map(Command::Open),
        request().prop_map(Command::Request),
        (session(), secret()).prop_map(|(session, secret)| Command::Close { session, secret }),
        renew.prop_map(Command::Renew),
        revoke().prop_map(Command::Revoke),
        evict.prop_map(Command::Evict),
        Just(Command::DrawNodeId),
        access::change_access(),
        (session(), secret()).prop_map(|(session, secret)| Command::Adopt { session, secret }),
        "[ -~]{0,512}".prop_map(|change| Command::Operate { change }),
        objects::write_object(),
        restored::seed().prop_map(Command::Seed),
        (0..=RECORD_VERSION).prop_map(|level| Command::RaiseLevel { level }),
        (open(), pod()).prop_map(|(open, pod)| Command::OpenForPod(OpenForPod {
            id: open.id,
            secret: open.secret,
            seen: open.seen,
            identity: open.identity,
            pod,
        })),
        (pod(), pod_seen()).prop_map(|(pod, seen)| Command::PodEnded(PodEnded {
            uid: pod.uid().clone(),
            seen,
        })),
    ]
    .boxed()
}
