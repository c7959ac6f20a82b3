//! What is counted since a level is not counted below it: all nodes make the same state of one log.

use ringfence_core::snapshot::Record;
use ringfence_core::{
    AccessChange, Called, Caller, Command, Entry, LEVEL_ACCESS, LEVEL_OBJECTS, LEVEL_RESTORE, Mode,
    OWING_MAX, Outcome, PRINCIPAL_OBJECTS_MAX, Principal, PrincipalLimits, Settings, StateMachine,
    Verb, WallTime,
};

use crate::bench::{ALICE, BOB, ROOT, allow, is_granted, is_written};
use crate::world::World;

/// An older release has no such limit at level 5.
#[test]
fn below_level_6_objects_of_a_principal_have_no_limit() {
    let mut world = World::shared(LEVEL_OBJECTS, 10);
    for at in 0..=PRINCIPAL_OBJECTS_MAX {
        let put = world.put(BOB, 1, "b", &format!("k8s/shop/x{at}"), None);
        assert!(is_written(&put), "{at}: {put:?}");
    }
}

/// An older release forgets the oldest note at level 5.
#[test]
fn below_level_6_the_oldest_note_goes() {
    let mut world = World::shared(LEVEL_OBJECTS, 1_000);
    let at = "k8s/shop/web";
    assert!(is_written(&world.put(ALICE, 1, "alice", at, Some(1))));
    world.pass(2);
    for term in 0..OWING_MAX {
        assert!(is_written(&world.put(
            BOB,
            2,
            &format!("bob{term}"),
            at,
            Some(1)
        )));
        world.pass(2);
    }
    let again = world.put(ALICE, 1, "alice", at, Some(1));
    assert!(
        is_written(&again),
        "an older release grants it, token and all: {again:?}"
    );
}

fn late(level: u32) -> World {
    let mut world = World::formed(level, Settings::STANDARD);
    for session in 1..=3 {
        world.open(None, session, 300);
    }
    world.change(vec![
        allow(ROOT, Verb::Admin, None),
        allow("anonymous", Verb::Acquire, Some("*")),
        AccessChange::SetLimits(PrincipalLimits {
            sessions: 3,
            leases: 3,
        }),
        AccessChange::SetMode(Mode::Enforced),
    ]);
    world
}

/// An older release has no limit of leases for sessions without an owner at levels 4 and 5.
#[test]
fn below_level_6_leases_without_owner_have_no_limit() {
    for level in [LEVEL_ACCESS, LEVEL_OBJECTS] {
        let mut world = late(level);
        for at in 0..4 {
            let granted = world.acquire_by(None, 1, &format!("n/{at}"), 0);
            assert!(is_granted(&granted), "level {level}, {at}: {granted:?}");
        }
    }
}

#[test]
fn below_level_6_sessions_without_owner_do_not_count_for_anonymous() {
    for level in [LEVEL_ACCESS, LEVEL_OBJECTS] {
        let mut world = late(level);
        let opened = world.opening(None, 4, 300);
        assert!(
            matches!(opened, Outcome::Opened(_)),
            "level {level}: {opened:?}"
        );
    }
}

/// An older release has no owner in its snapshot: a node that began from one differs for ever.
#[test]
fn below_level_6_objects_have_no_owner() {
    let mut world = World::shared(LEVEL_OBJECTS, 10);
    assert!(is_written(&world.put(BOB, 1, "b", "k8s/shop/web", None)));
    for record in world.machine.records() {
        if let Record::Object(object) = record {
            assert_eq!(object.object.owner, None);
        }
    }
}

/// Two nodes of this very release. One has applied the log from its first entry on; the other one
/// began with a snapshot that an older release wrote at level 5, which knows no owners. The level is
/// raised, and both apply the same entries.
#[test]
fn nodes_with_equal_logs_are_equal_after_an_upgrade() {
    let mut world = World::shared(LEVEL_OBJECTS, 10);
    for at in 0..PRINCIPAL_OBJECTS_MAX {
        assert!(is_written(&world.put(
            BOB,
            1,
            "b",
            &format!("k8s/shop/x{at}"),
            None
        )));
    }
    let older = world.machine.records().map(|record| match record {
        Record::Object(mut object) => {
            object.object.owner = None;
            Record::Object(object)
        }
        other => other,
    });
    let mut other = StateMachine::restore(older.collect::<Vec<_>>()).unwrap();
    let index = world.machine.index();
    let command = world.writing(1, "b", "k8s/shop/web", Some(15));
    let caller = Caller {
        principal: Principal::parse(BOB).unwrap(),
        token: None,
        node: 1,
    };
    let called = Command::Called(Box::new(Called { caller, command }));
    for (at, command) in [
        Command::RaiseLevel {
            level: LEVEL_RESTORE,
        },
        called,
    ]
    .into_iter()
    .enumerate()
    {
        let entry = Entry {
            index: index + 1 + at as u64,
            term: 1,
            time: world.time,
            wall: WallTime(world.time.0),
            command,
        };
        let one = world.machine.apply(&entry, &mut Vec::new());
        let two = other.apply(&entry, &mut Vec::new());
        assert_eq!(one, two, "node 1 and node 2 at entry {}", entry.index);
    }
}
