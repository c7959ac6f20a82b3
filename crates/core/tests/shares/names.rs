//! Names that no session uses any more.

use ringfence_core::{
    Acquire, Acquired, Ask, Command, Event, HolderData, Identity, LEVEL_OBJECTS, LEVEL_RESTORE,
    Limit, Millis, Open, OpenId, Outcome, Rejection, Request, RequestNumber, Secret,
};

use crate::bench::{ALICE, BOB, limit, name};
use crate::world::World;

#[test]
fn names_that_a_principal_used_and_gave_back_count_for_it() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    let first = world.use_once(2, "bobs");
    let mut last = first;
    for at in 0..50 {
        world.time.0 += 1;
        let token = world.use_once(1, &format!("churn/{at:02}"));
        assert!(token > last, "tokens never go back");
        last = token;
    }
    // Its own oldest ones went, and nothing of another principal.
    let left = ["bobs", "churn/47", "churn/48", "churn/49"];
    assert_eq!(world.names(), left);
    let forgotten = world.machine.summary().forgotten.unwrap();
    assert!(forgotten > first && forgotten < last);
    // A name that was forgotten comes back with a greater token.
    assert!(world.use_once(1, "churn/00") > last);
}

#[test]
fn below_the_level_names_that_were_given_back_count_for_no_principal() {
    let mut world = World::shared(LEVEL_OBJECTS, 3);
    for at in 0..50 {
        world.use_once(1, &format!("churn/{at:02}"));
    }
    assert_eq!(world.names().len(), 50);
    // What was idle before the level counts for no principal after it, and goes by its retention.
    world.apply(Command::RaiseLevel {
        level: LEVEL_RESTORE,
    });
    for at in 0..50 {
        world.use_once(1, &format!("more/{at:02}"));
    }
    assert_eq!(world.names().len(), 53);
}

#[test]
fn a_name_counts_for_the_principal_that_used_it_last() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    world.use_once(1, "shared");
    world.time.0 += 1;
    world.use_once(2, "shared");
    for at in 0..9 {
        world.time.0 += 1;
        world.use_once(1, &format!("churn/{at}"));
    }
    let left = ["churn/6", "churn/7", "churn/8", "shared"];
    assert_eq!(world.names(), left);
    // While it is held it counts for its holder alone.
    world.take(1, "shared");
    for at in 0..9 {
        world.time.0 += 1;
        world.use_once(2, &format!("bobs/{at}"));
    }
    let left = ["bobs/6", "bobs/7", "bobs/8", "churn/7", "churn/8", "shared"];
    assert_eq!(world.names(), left);
}

#[test]
fn an_idle_name_of_its_own_costs_a_principal_nothing_more() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    for lease in ["a", "b", "c"] {
        world.time.0 += 1;
        world.use_once(1, lease);
    }
    world.restore();
    world.take(1, "a");
    assert_eq!(world.names(), ["a", "b", "c"]);
    world.take(1, "d");
    assert_eq!(world.names(), ["a", "c", "d"]);
    world.take(1, "c");
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(3)));
    assert_eq!(world.acquire(1, "e", 0), full);
    assert_eq!(world.names(), ["a", "c", "d"]);
}

#[test]
fn names_under_a_lock_delay_count_too_until_it_is_over() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    let leases = ["a", "b", "c"];
    let granted = leases.map(|lease| match world.acquire(1, lease, 60) {
        Outcome::Acquired(Acquired::Granted(granted)) => granted,
        other => panic!("{other:?}"),
    });
    for granted in granted {
        world.revoke(BOB, granted.name.as_str(), granted.token, true);
    }
    world.evict(BOB, 1);
    // Evicted and opened again: the loss itself no longer counts, and the names cannot go yet.
    let open = Open {
        id: OpenId::new([9; 16]),
        secret: Secret::new([1; 16]),
        seen: None,
        ttl: Millis::from_secs(300),
        identity: Identity::parse("again").unwrap(),
        acquire: Some(Acquire {
            name: name("d"),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    };
    let Outcome::Opened(answer) = world.by(ALICE, Command::Open(open)) else {
        panic!("there is room for a session");
    };
    let full = Acquired::Refused(Rejection::Limit(Limit::PrincipalLeases(3)));
    assert_eq!(answer.acquired, Some(full));
    world.time.0 += 60_000;
    world.restore();
    world.apply(Command::Tick);
    let number = RequestNumber::new(2).unwrap();
    let acquire = Acquire {
        name: name("d"),
        wait: None,
        data: HolderData::default(),
        lock_delay: Millis(0),
    };
    let request = Request {
        session: answer.session,
        secret: Secret::new([1; 16]),
        number,
        lowest: number,
        ask: Ask::Acquire(acquire),
    };
    let granted = world.by(ALICE, Command::Request(request));
    assert!(
        matches!(granted, Outcome::Acquired(Acquired::Granted(_))),
        "{granted:?}"
    );
    assert_eq!(world.names(), ["b", "c", "d"]);
}

#[test]
fn where_a_lowered_limit_left_more_two_names_go_for_each_new_one() {
    let mut world = World::shared(LEVEL_RESTORE, 100);
    for at in 0..20 {
        world.time.0 += 1;
        world.use_once(1, &format!("old/{at:02}"));
    }
    world.change(vec![limit(4)]);
    world.take(1, "new");
    assert_eq!(world.names().len(), 19);
    let forgotten = |event: &&Event| matches!(event, Event::Forgotten { .. });
    assert_eq!(world.events.iter().filter(forgotten).count(), 2);
}
