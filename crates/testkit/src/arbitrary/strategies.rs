//! How likely each move is.

use proptest::collection::vec;
use proptest::option::{self, weighted};
use proptest::prelude::*;
use ringfence_core::{
    LEVEL_ACCESS, LEVEL_FIRST, LEVEL_OBJECTS, LEVEL_REPEATS, LEVEL_RESTORE, Mode,
};

use super::{
    AccessAct, AcquireAct, Act, AskAct, By, History, Limits, Lowest, Move, Number, ObjectAct, Pace,
    Past, Token, Version, Who,
};

/// Histories of up to `length` moves in which conflicts are frequent and numbers are moderate.
pub fn histories(length: usize) -> impl Strategy<Value = History> {
    from_moves(length, moderate_move().boxed())
}

/// Histories in which every number may also be an extreme one.
pub fn extreme_histories(length: usize) -> impl Strategy<Value = History> {
    let mixed = prop_oneof![4 => moderate_move(), 1 => extreme_move()];
    from_moves(length, mixed.boxed())
}

fn from_moves(length: usize, moves: BoxedStrategy<Move>) -> impl Strategy<Value = History> {
    let floor =
        prop_oneof![4 => Just(Some(0)), 1 => Just(None), 1 => (0..1_u64 << 52).prop_map(Some)];
    let level = prop_oneof![
        1 => Just(LEVEL_FIRST),
        2 => Just(LEVEL_REPEATS),
        3 => Just(LEVEL_ACCESS),
        2 => Just(LEVEL_OBJECTS),
        6 => Just(LEVEL_RESTORE),
    ];
    let quiet = proptest::bool::weighted(0.15);
    (
        limits(),
        floor,
        level,
        (quiet, weighted(0.1, past())),
        rights(),
        0..5_u8,
        0..length,
        vec(moves, 1..=length),
    )
        .prop_map(
            |(limits, floor, level, (quiet, past), rights, crowd, restore_after, moves)| History {
                past,
                rights,
                crowd,
                level,
                limits,
                floor,
                restore_after,
                quiet,
                moves,
            },
        )
}

/// Most clocks are above the tokens of the past.
fn past() -> BoxedStrategy<Past> {
    let tokens = prop_oneof![9 => 0..3_u64 << 20, 1 => extreme()];
    let sessions = prop_oneof![0..1_000_u64, extreme()];
    let ttl = prop_oneof![0..20_000_u64, extreme()];
    let held = vec(vec((0..4_u8, 0..6_u8), 0..4), 0..3);
    (tokens, sessions, ttl, proptest::bool::weighted(0.2), held)
        .prop_map(|(tokens, sessions, ttl_greatest, drill, held)| Past {
            tokens,
            sessions,
            ttl_greatest,
            drill,
            held,
        })
        .boxed()
}

/// In most histories rights bind from the beginning on, and allow most.
fn rights() -> BoxedStrategy<Vec<AccessAct>> {
    let everybody = |names| AccessAct::Allow {
        who: 0,
        verb: 0,
        names,
    };
    let bind = move |(names, more): (u8, Vec<AccessAct>)| {
        let first = [everybody(names), AccessAct::Mode(Mode::Enforced)];
        first.into_iter().chain(more).collect()
    };
    let names = prop_oneof![4 => Just(0), 1 => 1..5_u8];
    prop_oneof![
        2 => Just(Vec::new()),
        1 => Just(vec![AccessAct::Mode(Mode::Permissive)]),
        5 => (names, vec(allow(), 0..6)).prop_map(bind),
    ]
    .boxed()
}

fn allow() -> BoxedStrategy<AccessAct> {
    let verb = prop_oneof![4 => Just(0), 3 => Just(2), 3 => 0..7_u8];
    (any::<u8>(), verb, any::<u8>())
        .prop_map(|(who, verb, names)| AccessAct::Allow { who, verb, names })
        .boxed()
}

fn change_of_rights() -> BoxedStrategy<AccessAct> {
    let mode =
        prop_oneof![1 => Just(Mode::Off), 1 => Just(Mode::Permissive), 5 => Just(Mode::Enforced)];
    prop_oneof![
        4 => allow(),
        6 => any::<u8>().prop_map(AccessAct::Forbid),
        2 => (0..6_u8).prop_map(AccessAct::Ban),
        2 => (0..6_u8).prop_map(AccessAct::Unban),
        2 => any::<u8>().prop_map(AccessAct::Token),
        1 => any::<u8>().prop_map(AccessAct::EndTokens),
        2 => mode.prop_map(AccessAct::Mode),
        2 => (0..4_u8, 0..5_u8)
            .prop_map(|(sessions, leases)| AccessAct::Limits { sessions, leases }),
    ]
    .boxed()
}

fn by() -> BoxedStrategy<By> {
    prop_oneof![
        24 => Just(By::Owner),
        2 => Just(By::Nobody),
        3 => (0..6_u8).prop_map(By::Principal),
        1 => (0..3_u8).prop_map(By::Token)
    ]
    .boxed()
}

fn limits() -> BoxedStrategy<Limits> {
    prop_oneof![6 => Just(Limits::Wide), 2 => Just(Limits::Tight), 1 => Just(Limits::One)].boxed()
}

/// Numbers at which arithmetic breaks.
fn extreme() -> BoxedStrategy<u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just((1 << 63) - 1),
        Just(1 << 63),
        Just(u64::MAX - 1),
        Just(u64::MAX),
        any::<u64>()
    ]
    .boxed()
}

fn moderate_move() -> BoxedStrategy<Move> {
    let pace = prop_oneof![
        30 => Just(Pace::Still),
        10 => (1..700_u64).prop_map(Pace::By),
        4 => (0..3_u64).prop_map(Pace::ToDeadline),
        4 => Just(Pace::BeforeDeadline),
        1 => (0..70_000_u64).prop_map(Pace::By),
        2 => (1..10_000_u64).prop_map(Pace::Back)
    ];
    (pace, proptest::bool::weighted(0.02), by(), moderate_act())
        .prop_map(|(pace, stray, by, act)| Move {
            pace,
            stray,
            by,
            act,
        })
        .boxed()
}

fn who() -> BoxedStrategy<Who> {
    prop_oneof![
        8 => (0..6_u8).prop_map(Who::Live),
        4 => Just(Who::Holder),
        2 => (0..3_u8).prop_map(Who::Waiter),
        1 => (1..9_u64).prop_map(Who::Number)
    ]
    .boxed()
}

fn token() -> BoxedStrategy<Token> {
    prop_oneof![
        8 => Just(Token::Current),
        1 => (0..3_u8).prop_map(Token::Older),
        1 => (0..3_u8).prop_map(Token::Lost),
        1 => (1..12_u64).prop_map(Token::Exactly)
    ]
    .boxed()
}

fn number() -> BoxedStrategy<Number> {
    prop_oneof![
        20 => Just(Number::Next),
        3 => (0..4_u8).prop_map(Number::Used),
        1 => (1..9_u64).prop_map(Number::Exactly),
        1 => (250..260_u64).prop_map(Number::FromLowest)
    ]
    .boxed()
}

fn lowest() -> BoxedStrategy<Lowest> {
    prop_oneof![
        6 => Just(Lowest::First),
        3 => (0..4_u8).prop_map(Lowest::Behind),
        1 => (1..9_u64).prop_map(Lowest::Exactly)
    ]
    .boxed()
}

fn acquire() -> BoxedStrategy<AcquireAct> {
    let waits = prop_oneof![1 => 0..3_u64, 3 => 1..1_500_u64, 8 => 1_000..90_000_u64];
    let wait = weighted(0.75, waits);
    let lock_delay = prop_oneof![8 => Just(0), 2 => 1..900_u64, 1 => 1..=60_000_u64];
    (lease(), wait, lock_delay, 0..3_u8)
        .prop_map(|(lease, wait, lock_delay, data)| AcquireAct {
            lease,
            wait,
            lock_delay,
            data,
        })
        .boxed()
}

/// Most histories turn about one lease or two.
fn lease() -> BoxedStrategy<u8> {
    prop_oneof![6 => Just(0), 3 => Just(1), 2 => Just(4), 1 => 0..5_u8].boxed()
}

/// An ask, and who is likely to make it.
fn ask() -> BoxedStrategy<(Who, AskAct)> {
    let cancel = number().prop_map(|number| AskAct::Cancel { number });
    let release = (lease(), token(), proptest::bool::weighted(0.1));
    let release = release.prop_map(|(lease, token, close)| AskAct::Release {
        lease,
        token,
        close,
    });
    let to = option::of(prop_oneof![3 => (0..3_u8).prop_map(Who::Waiter), 1 => who()]);
    let transfer = (lease(), token(), to);
    let transfer = transfer.prop_map(|(lease, token, to)| AskAct::Transfer { lease, token, to });
    let holder = || prop_oneof![4 => Just(Who::Holder), 1 => who()];
    let waiter = prop_oneof![1 => (0..3_u8).prop_map(Who::Waiter), 2 => who()];
    let anybody = prop_oneof![6 => (0..6_u8).prop_map(Who::Live), 1 => who()];
    prop_oneof![
        10 => (anybody, acquire().prop_map(AskAct::Acquire)),
        3 => (waiter, cancel),
        5 => (holder(), release),
        3 => (holder(), transfer)
    ]
    .boxed()
}

fn ttl() -> BoxedStrategy<u64> {
    prop_oneof![3 => 100..1_500_u64, 6 => 1_000..120_000_u64, 1 => 0..130_000_u64].boxed()
}

fn moderate_act() -> BoxedStrategy<Act> {
    let forged = || proptest::bool::weighted(0.04);
    let unix = option::weighted(0.6, prop_oneof![0..9_u64, Just(2_000_000_000)]);
    let retention = prop_oneof![1_000..3_000_u64, 1_000..90_000_u64];
    prop_oneof![
        24 => (forged(), number(), lowest(), ask()).prop_map(
            |(forged, number, lowest, (by, ask))| Act::Request { by, forged, number, lowest, ask }),
        8 => (any::<u8>(), forged(), weighted(0.4, 0..70_000_u64), ttl(), option::of(acquire()))
            .prop_map(|(id, forged, seen_ago, ttl, acquire)| Act::Open {
                id: id % 24, forged, seen_ago, ttl, acquire }),
        8 => (any::<u8>(), weighted(0.2, who()), weighted(0.4, (lease(), token())))
            .prop_map(|(living, also, acknowledge)| Act::Renew { living, also, acknowledge }),
        3 => Just(Act::Tick),
        3 => (lease(), token(), proptest::bool::weighted(0.3))
            .prop_map(|(lease, token, now)| Act::Revoke { lease, token, now }),
        9 => (0..16_u8).prop_map(Act::Again),
        1 => (who(), forged()).prop_map(|(by, forged)| Act::Close { by, forged }),
        2 => who().prop_map(|who| Act::Evict { who }),
        3 => (any::<u8>(), forged(), weighted(0.4, 0..70_000_u64), any::<u8>())
            .prop_map(|(id, forged, seen_ago, pod)| Act::OpenForPod {
                id: id % 24, forged, seen_ago, pod }),
        1 => any::<u8>().prop_map(|pod| Act::PodEnded { pod }),
        1 => (0..3_u64, unix).prop_map(|(later, unix_seconds)| Act::TermStart {
            later, unix_seconds }),
        1 => (proptest::bool::weighted(0.2), limits(), 1_000..300_000_u64, retention).prop_map(
            |(stale, limits, ttl_max, idle_retention)| Act::Configure {
                stale, limits, ttl_max, idle_retention }),
        1 => Just(Act::DrawNodeId),
        1 => (0..=LEVEL_RESTORE).prop_map(Act::RaiseLevel),
        4 => (proptest::bool::weighted(0.05), proptest::bool::weighted(0.02),
              vec(change_of_rights(), 0..4))
            .prop_map(|(stale, foreign, changes)| Act::ChangeAccess { stale, foreign, changes }),
        1 => (who(), forged()).prop_map(|(by, forged)| Act::Adopt { by, forged }),
        1 => Just(Act::Operate),
        12 => write_object(0..40_u32),
    ]
    .boxed()
}

/// Mostly of the name that is one of Kubernetes.
fn write_object(seconds: impl Strategy<Value = u32>) -> impl Strategy<Value = Act> {
    let lease = prop_oneof![6 => Just(4), 1 => 0..5_u8];
    let pod = weighted(0.8, 0..6_u8);
    let version = prop_oneof![
        10 => Just(Version::Present),
        1 => (1..4_u8).prop_map(Version::Older),
        1 => Just(Version::Absent),
    ];
    let holder = prop_oneof![2 => Just(0), 8 => Just(1), 3 => Just(2)];
    let write = prop_oneof![
        1 => any::<u8>().prop_map(ObjectAct::Metadata),
        9 => (holder, seconds, proptest::bool::weighted(0.1)).prop_map(
            |(holder, seconds, new_term)| ObjectAct::Spec { holder, seconds, new_term }),
        1 => option::of(any::<bool>()).prop_map(ObjectAct::Delete),
    ];
    (lease, pod, any::<bool>(), version, write).prop_map(|(lease, pod, watched, version, write)| {
        Act::WriteObject {
            lease,
            pod,
            watched,
            version,
            write,
        }
    })
}

fn extreme_move() -> BoxedStrategy<Move> {
    let pace = prop_oneof![
        12 => Just(Pace::Still),
        4 => (0..3_u64).prop_map(Pace::ToDeadline),
        2 => extreme().prop_map(Pace::Back),
        1 => extreme().prop_map(Pace::At),
    ];
    (pace, proptest::bool::weighted(0.02), by(), extreme_act())
        .prop_map(|(pace, stray, by, act)| Move {
            pace,
            stray,
            by,
            act,
        })
        .boxed()
}

fn extreme_act() -> BoxedStrategy<Act> {
    let any_who = || prop_oneof![5 => who(), 1 => extreme().prop_map(Who::Number)];
    let any_token = || prop_oneof![3 => token(), 1 => extreme().prop_map(Token::Exactly)];
    let any_number = || prop_oneof![5 => number(), 1 => extreme().prop_map(Number::Exactly)];
    let any_lowest = prop_oneof![5 => lowest(), 1 => extreme().prop_map(Lowest::Exactly)];
    let any_acquire = || {
        let wait = prop_oneof![
            Just(None),
            extreme().prop_map(Some),
            Just(Some(86_400_000)),
            Just(Some(86_400_001))
        ];
        let lock_delay = prop_oneof![4 => Just(0), 1 => extreme(), 1 => Just(60_000)];
        (0..4_u8, wait, lock_delay).prop_map(|(lease, wait, lock_delay)| AcquireAct {
            lease,
            wait,
            lock_delay,
            data: 0,
        })
    };
    let any_ask = prop_oneof![
        any_acquire().prop_map(AskAct::Acquire),
        any_number().prop_map(|number| AskAct::Cancel { number }),
        (0..4_u8, any_token(), any::<bool>()).prop_map(|(lease, token, close)| AskAct::Release {
            lease,
            token,
            close
        }),
        (0..4_u8, any_token(), option::of(any_who()))
            .prop_map(|(lease, token, to)| AskAct::Transfer { lease, token, to })
    ];
    let form = (limits(), option::of(extreme()), option::of(past()));
    let seed = (0..3_u8, vec((0..4_u8, 0..6_u8), 0..3));
    prop_oneof![
        (any_who(), any::<bool>(), any_number(), any_lowest, any_ask).prop_map(
            |(by, forged, number, lowest, ask)| Act::Request {
                by,
                forged,
                number,
                lowest,
                ask
            }
        ),
        (
            any::<u8>(),
            option::of(extreme()),
            extreme(),
            option::of(any_acquire())
        )
            .prop_map(|(id, seen_ago, ttl, acquire)| Act::Open {
                id,
                forged: false,
                seen_ago,
                ttl,
                acquire
            }),
        (any_who(), 0..4_u8, any_token()).prop_map(|(also, lease, token)| Act::Renew {
            living: 255,
            also: Some(also),
            acknowledge: Some((lease, token))
        }),
        (0..4_u8, any_token(), any::<bool>()).prop_map(|(lease, token, now)| Act::Revoke {
            lease,
            token,
            now
        }),
        (any_who(), any::<bool>()).prop_map(|(by, forged)| Act::Close { by, forged }),
        any_who().prop_map(|who| Act::Evict { who }),
        (any::<u8>(), option::of(extreme()), any::<u8>()).prop_map(|(id, seen_ago, pod)| {
            Act::OpenForPod {
                id,
                forged: false,
                seen_ago,
                pod,
            }
        }),
        any::<u8>().prop_map(|pod| Act::PodEnded { pod }),
        (
            prop_oneof![0..3_u64, 0..(1_u64 << 40)],
            option::of(extreme())
        )
            .prop_map(|(later, unix_seconds)| Act::TermStart {
                later,
                unix_seconds
            }),
        form.prop_map(|(limits, floor, past)| Act::Form {
            limits,
            floor,
            past
        }),
        seed.prop_map(|(part, held)| Act::Seed { part, held }),
        write_object(extreme().prop_map(|number| u32::try_from(number).unwrap_or(u32::MAX))),
        (any::<bool>(), limits(), extreme(), extreme()).prop_map(
            |(stale, limits, ttl_max, idle_retention)| Act::Configure {
                stale,
                limits,
                ttl_max,
                idle_retention
            }
        ),
    ]
    .boxed()
}
