//! The limits at their real size.
#![allow(clippy::unwrap_used)]

mod world;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ringfence_core::snapshot::{Header, Record, TokenCounter};
use ringfence_core::{
    Acquire, Acquired, Ask, Command, Event, FencingToken, HolderData, Identity, LeaseName, Limit,
    Millis, Open, OpenId, Outcome, Rejection, Request, RequestNumber, Secret, SessionId,
    StateMachine, UNCONFIRMED_MAX,
};
use world::{World, opened};

fn open(world: &mut World, number: u128) -> SessionId {
    let open = Open {
        id: OpenId::new(number.to_le_bytes()),
        secret: Secret::new([0; 16]),
        seen: None,
        ttl: Millis::from_secs(15),
        identity: Identity::parse("limits").unwrap(),
        acquire: None,
    };
    opened(world.apply(Command::Open(open)))
}

fn acquire(world: &mut World, session: SessionId, number: u64, name: &str, wait: bool) -> Outcome {
    let (data, lock_delay) = (HolderData::default(), Millis(0));
    let wait = wait.then_some(Millis::from_secs(60));
    let name = LeaseName::parse(name).unwrap();
    world.apply(Command::Request(Request {
        session,
        secret: Secret::new([0; 16]),
        number: RequestNumber::new(number).unwrap(),
        lowest: RequestNumber::new(number).unwrap(),
        ask: Ask::Acquire(Acquire {
            name,
            wait,
            data,
            lock_delay,
        }),
    }))
}

#[test]
fn the_100_001st_waiter_of_a_lease_is_refused() {
    let mut world = World::new();
    let holder = open(&mut world, 0);
    acquire(&mut world, holder, 1, "crowded", false);
    let mut waiting = 0;
    'sessions: for number in 1.. {
        let session = open(&mut world, number);
        for request in 1..=UNCONFIRMED_MAX {
            match acquire(&mut world, session, request, "crowded", true) {
                Outcome::Acquired(Acquired::Waiting { .. }) => waiting += 1,
                Outcome::Rejected(Rejection::Limit(Limit::LeaseWaiters(100_000))) => {
                    break 'sessions;
                }
                other => panic!("waiter {waiting}: {other:?}"),
            }
        }
    }
    assert_eq!(waiting, 100_000);
    assert_eq!(world.machine.summary().waiters, 100_000);
}

/// How long the quickest of a few tries takes: what else runs on this machine makes none quicker.
fn quickest(mut once: impl FnMut() -> Duration) -> Duration {
    let tries = (0..15).map(|_| once());
    tries.min().unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn a_transfer_to_the_last_of_100_000_waiters_takes_no_longer_than_one_to_the_first() {
    let mut world = World::new();
    let mut holder = open(&mut world, 0);
    acquire(&mut world, holder, 1, "crowded", false);
    let mut waiters = VecDeque::new();
    for at in 1..=100_000 {
        let session = open(&mut world, at);
        acquire(&mut world, session, 1, "crowded", true);
        waiters.push_back(session);
    }
    let mut transfer = |to: SessionId| {
        let name = LeaseName::parse("crowded").unwrap();
        let token = world.machine.get(&name).unwrap().floor.unwrap();
        let command = Command::Request(Request {
            session: holder,
            secret: Secret::new([0; 16]),
            number: RequestNumber::new(2).unwrap(),
            lowest: RequestNumber::FIRST,
            ask: Ask::Transfer {
                name,
                token,
                to: Some(to),
            },
        });
        let start = Instant::now();
        let outcome = world.apply(command);
        let took = start.elapsed();
        assert!(
            matches!(outcome, Outcome::Transferred { to: got, .. } if got == to),
            "{outcome:?}"
        );
        holder = to;
        took
    };
    let first = quickest(|| transfer(waiters.pop_front().unwrap()));
    let last = quickest(|| transfer(waiters.pop_back().unwrap()));
    // A look at each waiter would take a hundred times as long.
    assert!(last < first * 10, "{last:?}, but {first:?} to the first");
}

#[test]
fn the_4_097th_lease_of_a_session_is_refused() {
    let mut world = World::new();
    let session = open(&mut world, 0);
    for number in 1..=4_096 {
        let outcome = acquire(
            &mut world,
            session,
            number,
            &format!("lease/{number}"),
            false,
        );
        assert!(
            matches!(outcome, Outcome::Acquired(Acquired::Granted(_))),
            "{outcome:?}"
        );
    }
    let outcome = acquire(&mut world, session, 4_097, "lease/more", false);
    assert_eq!(
        outcome,
        Outcome::Rejected(Rejection::Limit(Limit::SessionLeases(4_096)))
    );
}

#[test]
fn the_4_097th_wait_of_a_session_is_refused_and_numbers_go_on_meanwhile() {
    let mut world = World::new();
    let (holder, session) = (open(&mut world, 0), open(&mut world, 1));
    acquire(&mut world, holder, 1, "held", false);
    for number in 1..=4_096 {
        let outcome = acquire(&mut world, session, number, "held", true);
        assert!(
            matches!(outcome, Outcome::Acquired(Acquired::Waiting { .. })),
            "{outcome:?}"
        );
    }
    let outcome = acquire(&mut world, session, 4_097, "held", true);
    let limit = Rejection::Limit(Limit::SessionLeases(4_096));
    assert_eq!(outcome, Outcome::Rejected(limit));
}

/// A cluster that has granted nearly all tokens there are: the state of another one, with its counter
/// there.
fn near_the_last_token(world: &mut World) {
    let records = world.machine.records().map(|record| match record {
        Record::Header(header) => Record::Header(Header {
            tokens: TokenCounter::restored(FencingToken::MAX - 1, header.tokens.granted()),
            ..header
        }),
        other => other,
    });
    let records: Vec<_> = records.collect();
    world.machine = StateMachine::restore(records).unwrap();
}

#[test]
fn pain_22_behind_the_last_token_none_is_granted_and_none_goes_back() {
    let mut world = World::new();
    let (session, next) = (open(&mut world, 0), open(&mut world, 1));
    near_the_last_token(&mut world);

    let outcome = acquire(&mut world, session, 1, "last", false);
    let Outcome::Acquired(Acquired::Granted(granted)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(granted.token.get(), FencingToken::MAX);
    let exhausted = Outcome::Rejected(Rejection::TokensExhausted);
    assert_eq!(acquire(&mut world, session, 2, "more", false), exhausted);
    assert!(matches!(
        acquire(&mut world, next, 1, "last", true),
        Outcome::Acquired(Acquired::Waiting { .. })
    ));

    // Nor is one made for who waits, by a hand-over or by a release.
    let (name, token) = (granted.name, granted.token);
    let mut ask = |number, ask| {
        let number = RequestNumber::new(number).unwrap();
        let outcome = world.apply(Command::Request(Request {
            session,
            secret: Secret::new([0; 16]),
            number,
            lowest: number,
            ask,
        }));
        let granted = |event: &Event| matches!(event, Event::Granted(_));
        assert!(!world.events.iter().any(granted), "{:?}", world.events);
        outcome
    };
    let transfer = Ask::Transfer {
        name: name.clone(),
        token,
        to: None,
    };
    assert_eq!(ask(3, transfer), exhausted);
    let release = Ask::Release {
        name,
        token,
        close: false,
    };
    assert!(matches!(ask(4, release), Outcome::Released { .. }));
    assert_eq!(acquire(&mut world, next, 2, "other", false), exhausted);
    assert_eq!(world.machine.summary().last_token, FencingToken::MAX);
}
