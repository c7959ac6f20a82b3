//! Lease objects, and notes of who lost a term.

use ringfence_core::{
    AccessChange, Called, Caller, Command, LEVEL_RESTORE, Limit, Mode, OWING_MAX, ObjectWrite,
    Outcome, PRINCIPAL_OBJECTS_MAX, Principal, Rejection, Settings, Verb, WriteObject,
};

use crate::bench::{ALICE, BOB, ROOT, allow, limit, name};
use crate::world::World;

fn full() -> Outcome {
    Outcome::Rejected(Rejection::Limit(Limit::PrincipalObjects(
        PRINCIPAL_OBJECTS_MAX,
    )))
}

fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Object(_))
}

/// Without a holder or with one that has given it back, an object stays.
#[test]
fn a_principal_does_not_fill_a_namespace_with_objects() {
    let mut world = World::shared(LEVEL_RESTORE, 1);
    for at in 0..PRINCIPAL_OBJECTS_MAX {
        let put = world.put(BOB, 1, "b", &format!("k8s/shop/x{at}"), None);
        assert!(is_written(&put), "{put:?}");
    }
    assert_eq!(world.put(BOB, 1, "b", "k8s/shop/more", None), full());
    assert_eq!(world.put(BOB, 1, "b", "k8s/bank/more", Some(15)), full());
    world.restore();
    assert_eq!(world.put(BOB, 1, "b", "k8s/shop/more", None), full());
    // What it has it may write, and a session's lease needs no object of its own.
    let held = world.put(BOB, 1, "b", "k8s/shop/x0", Some(15));
    assert!(is_written(&held), "{held:?}");
    let alices = world.put(ALICE, 2, "a", "k8s/shop/web", Some(15));
    assert!(is_written(&alices), "{alices:?}");
    // Another one that writes it does not take it over; deleted it counts no more.
    let also = world.put(ALICE, 2, "a", "k8s/shop/x1", None);
    assert!(is_written(&also), "{also:?}");
    assert_eq!(world.put(BOB, 1, "b", "k8s/shop/more", None), full());
    let delete = WriteObject {
        name: name("k8s/shop/x1"),
        version: Some(world.machine.object(&name("k8s/shop/x1")).unwrap().version),
        pod: None,
        watched: None,
        write: ObjectWrite::Delete { revoke: None },
    };
    let deleted = world.by(ALICE, Command::WriteObject(Box::new(delete)));
    assert!(is_written(&deleted), "{deleted:?}");
    let put = world.put(BOB, 1, "b", "k8s/shop/more", None);
    assert!(is_written(&put), "{put:?}");
}

/// The object of a session's lease goes with the lease, until it is written: then it stays.
#[test]
fn the_object_of_a_sessions_lease_counts_once_it_is_written() {
    let mut world = World::shared(LEVEL_RESTORE, 10_000);
    for at in 0..PRINCIPAL_OBJECTS_MAX {
        world.put(BOB, 1, "b", &format!("k8s/shop/x{at}"), None);
    }
    let token = world.take(2, "k8s/shop/held");
    assert!(world.machine.object(&name("k8s/shop/held")).is_some());
    assert_eq!(world.put(BOB, 1, "b", "k8s/shop/held", None), full());
    world.release(2, "k8s/shop/held", token);
    assert!(world.machine.object(&name("k8s/shop/held")).is_none());
}

fn owes(world: &World, at: &str) -> Outcome {
    let command = world.writing(1, "alice", at, Some(1));
    let caller = Caller {
        principal: Principal::parse(ALICE).unwrap(),
        token: None,
        node: 1,
    };
    let called = Command::Called(Box::new(Called { caller, command }));
    world.machine.rehearse_object_write(&called)
}

/// Alice lost a term while she slept. Another principal loses so many of the same name that one note
/// too many is there.
#[test]
fn the_note_of_a_loss_is_not_displaced_by_another_principal() {
    let mut world = World::shared(LEVEL_RESTORE, 1_000);
    let at = "k8s/shop/web";
    assert!(is_written(&world.put(ALICE, 1, "alice", at, Some(1))));
    world.pass(2);
    for term in 0..=OWING_MAX {
        let bobs = world.put(BOB, 2, &format!("bob{term}"), at, Some(1));
        assert!(is_written(&bobs), "{bobs:?}");
        world.pass(2);
    }
    let owing = |outcome: &Outcome| matches!(outcome, Outcome::Rejected(Rejection::Owing { .. }));
    let wakes = owes(&world, at);
    assert!(owing(&wakes), "{wakes:?}");
    world.restore();
    assert_eq!(owes(&world, at), wakes);
    // Of its own notes the oldest is gone.
    let first = world.writing(2, "bob0", at, Some(1));
    let first = world.by(BOB, first);
    assert!(is_written(&first), "{first:?}");
}

/// Principals that have one note each lose the oldest.
#[test]
fn among_equals_the_oldest_note_goes() {
    let mut world = World::formed(LEVEL_RESTORE, Settings::STANDARD);
    world.change(vec![
        allow(ROOT, Verb::Admin, None),
        allow("cert:cn:*", Verb::Acquire, Some("*")),
        limit(10),
        AccessChange::SetMode(Mode::Enforced),
    ]);
    let at = "k8s/shop/web";
    let elector = |number: usize| format!("cert:cn:{number}");
    // The last one's text is the first in order.
    for number in (0..=OWING_MAX).rev() {
        assert!(is_written(&world.put(
            &elector(number),
            1,
            "e",
            at,
            Some(1)
        )));
        world.pass(2);
    }
    let again = world.put(&elector(OWING_MAX), 1, "e", at, Some(1));
    assert!(
        is_written(&again),
        "the first loser's note is gone: {again:?}"
    );
    world.pass(2);
    // It lost again, and that displaced the oldest of those that were left.
    let next = world.put(&elector(OWING_MAX - 1), 1, "e", at, Some(1));
    assert!(is_written(&next), "{next:?}");
    world.pass(2);
    let kept = world.put(&elector(OWING_MAX - 3), 1, "e", at, Some(1));
    let owing = matches!(kept, Outcome::Rejected(Rejection::Owing { .. }));
    assert!(owing, "{kept:?}");
}
