//! The limits at their real size.
#![allow(clippy::unwrap_used)]

mod world;

use ringfence_core::{
    Acquire, Acquired, Ask, Command, HolderData, Identity, LeaseName, Limit, Millis, Open, OpenId,
    Outcome, Rejection, Request, RequestNumber, Secret, SessionId, UNCONFIRMED_MAX,
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
