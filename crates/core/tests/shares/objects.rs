//! Lease objects, and notes of who lost a term.

use ringfence_core::{
    AccessChange, Called, Caller, Command, LEVEL_OBJECTS, LEVEL_RESTORE, Limit, Mode,
    NAMESPACE_OBJECTS_MAX, OWING_MAX, ObjectMetadata, ObjectWrite, Outcome, PRINCIPAL_OBJECTS_MAX,
    Principal, PrincipalLimits, Rejection, Settings, Verb, WriteObject,
};

use crate::bench::{ALICE, BOB, ROOT, allow, is_written, limit, name};
use crate::world::World;

fn full() -> Outcome {
    Outcome::Rejected(Rejection::Limit(Limit::PrincipalObjects(
        PRINCIPAL_OBJECTS_MAX,
    )))
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
    let mut labels = world.writing(1, "b", "k8s/shop/held", None);
    if let Command::WriteObject(write) = &mut labels {
        let metadata = ObjectMetadata::new(b"labels").unwrap();
        write.write = ObjectWrite::Put {
            metadata,
            spec: None,
        };
    }
    assert_eq!(world.by(BOB, labels), full());
    // A write that changes nothing makes it no one's.
    let same = world.put(BOB, 1, "b", "k8s/shop/held", None);
    assert!(is_written(&same), "{same:?}");
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

fn label(world: &mut World, who: Option<&str>, at: &str, label: u8) -> Outcome {
    let write = WriteObject {
        name: name(at),
        version: world.machine.object(&name(at)).map(|object| object.version),
        pod: None,
        watched: None,
        write: ObjectWrite::Put {
            metadata: ObjectMetadata::new(&[label]).unwrap(),
            spec: None,
        },
    };
    world.called(who, Command::WriteObject(Box::new(write)))
}

/// It makes them without its credential, and then writes them with it.
#[test]
fn a_principal_does_not_fill_a_namespace_by_way_of_anonymous() {
    let mut world = World::shared(LEVEL_RESTORE, 10);
    world.change(vec![allow("anonymous", Verb::Acquire, Some("*"))]);
    let mut made = 0;
    for at in 0..NAMESPACE_OBJECTS_MAX {
        let at = format!("k8s/shop/x{at}");
        if !is_written(&label(&mut world, None, &at, 0))
            || !is_written(&label(&mut world, Some(BOB), &at, 1))
        {
            break;
        }
        made += 1;
    }
    let alices = world.put(ALICE, 2, "a", "k8s/shop/web", Some(15));
    assert!(is_written(&alices), "{alices:?}");
    assert_eq!(made, PRINCIPAL_OBJECTS_MAX);
}

/// Objects from before the level count for none, also for who writes them later.
#[test]
fn who_labels_objects_of_others_pays_for_none() {
    let mut world = World::shared(LEVEL_OBJECTS, 10_000);
    for at in 0..PRINCIPAL_OBJECTS_MAX {
        world.use_once(2, &format!("k8s/shop/x{at}"));
    }
    world.apply(Command::RaiseLevel {
        level: LEVEL_RESTORE,
    });
    for at in 0..PRINCIPAL_OBJECTS_MAX {
        let labelled = label(&mut world, Some(ALICE), &format!("k8s/shop/x{at}"), 1);
        assert!(is_written(&labelled));
    }
    let elects = world.put(ALICE, 1, "a", "k8s/shop/web", Some(15));
    assert!(is_written(&elects), "alice made none: {elects:?}");
}

/// Objects of its sessions' leases count for none, and take no room from written ones. The limits are
/// those of every new cluster.
#[test]
fn a_principal_does_not_fill_a_namespace_by_its_sessions_with_standard_limits() {
    let mut world = World::shared(LEVEL_RESTORE, 10);
    world.change(vec![AccessChange::SetLimits(PrincipalLimits::STANDARD)]);
    for session in 3..6 {
        world.open(Some(BOB), session, 300);
    }
    for at in 0..NAMESPACE_OBJECTS_MAX {
        let session = 3 + u8::try_from(at / 4_000).unwrap();
        world.take_by(Some(BOB), session, &format!("k8s/shop/x{at}"));
    }
    let alices = world.put(ALICE, 2, "a", "k8s/shop/web", Some(15));
    assert!(is_written(&alices), "{alices:?}");
}

/// The session that held the lease ends in the entry of the write itself, which foresees the version.
#[test]
fn a_write_in_the_entry_that_frees_the_lease_makes_an_object_of_its_own() {
    let at = "k8s/shop/held";
    for seconds in [None, Some(15)] {
        let mut world = World::shared(LEVEL_RESTORE, 1_000_000);
        let foreseen = |world: &mut World, number| {
            world.open(Some(ALICE), number, 1);
            world.take_by(Some(ALICE), number, at);
            world.time.0 += 1_000;
            let mut write = world.writing(1, "b", at, seconds);
            if let Command::WriteObject(write) = &mut write {
                write.version = Some(world.machine.objects_version() + 1);
            }
            world.by(BOB, write)
        };
        let written = foreseen(&mut world, 3);
        assert!(is_written(&written), "{written:?}");
        assert!(world.machine.object(&name(at)).is_some(), "it is gone");

        let mut world = World::shared(LEVEL_RESTORE, 1_000_000);
        for more in 0..PRINCIPAL_OBJECTS_MAX {
            world.put(BOB, 1, "b", &format!("k8s/shop/x{more}"), None);
        }
        assert_eq!(foreseen(&mut world, 3), full());
        assert!(world.machine.object(&name(at)).is_none(), "it stays");
    }
}
