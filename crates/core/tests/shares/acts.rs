//! Places in the list of acts.

use ringfence_core::{
    AUDIT_RECORDS_MAX, AccessChange, Command, Configure, LEVEL_OBJECTS, LEVEL_RESTORE, Outcome,
    Principal, Verb,
};

use crate::bench::{BOB, ROOT, allow};
use crate::world::World;

#[test]
fn an_act_that_changes_nothing_takes_no_place_among_the_acts() {
    let mut world = World::shared(LEVEL_RESTORE, 100);
    let token = world.take(1, "job");
    let before = world.acts();
    assert_eq!(world.revoke(BOB, "job", token, false), Outcome::Done);
    assert_eq!(world.acts(), before + 1);
    // It lifts what keeps the next holder waiting, once.
    assert_eq!(world.revoke(BOB, "job", token, false), Outcome::Done);
    assert_eq!(world.acts(), before + 1);
    assert_eq!(world.revoke(BOB, "job", token, true), Outcome::Done);
    assert_eq!(world.acts(), before + 2);
    assert_eq!(world.revoke(BOB, "job", token, true), Outcome::Done);
    assert_eq!(world.acts(), before + 2);

    for _ in 0..3 {
        let closed = world.evict(BOB, 1);
        assert!(matches!(closed, Outcome::Closed { .. }), "{closed:?}");
        assert_eq!(world.acts(), before + 3);
    }
    for _ in 0..3 {
        world.change(vec![
            allow(ROOT, Verb::Admin, None),
            AccessChange::Unban(Principal::parse(BOB).unwrap()),
        ]);
        let configure = Configure {
            based_on: world.machine.settings_set_at(),
            settings: *world.machine.settings(),
        };
        assert_eq!(world.by(ROOT, Command::Configure(configure)), Outcome::Done);
    }
    assert_eq!(world.acts(), before + 3);

    let mut below = World::shared(LEVEL_OBJECTS, 100);
    let token = below.take(1, "job");
    let before = below.acts();
    below.revoke(BOB, "job", token, false);
    below.revoke(BOB, "job", token, false);
    assert_eq!(below.acts(), before + 2);
}

/// Bob acts again and again; what root did stands.
#[test]
fn who_acts_most_displaces_its_own_acts() {
    let flood = |level| {
        // Losses that are not acknowledged count.
        let mut world = World::shared(level, 10_000);
        world.change(vec![allow("cert:cn:evil", Verb::Admin, None)]);
        let by_root = world.acts();
        for _ in 0..AUDIT_RECORDS_MAX + 10 {
            let token = world.take(1, "job");
            world.revoke(BOB, "job", token, true);
            world.restore_now_and_then();
        }
        (world, by_root)
    };
    let (world, by_root) = flood(LEVEL_RESTORE);
    assert_eq!(world.acts(), AUDIT_RECORDS_MAX);
    let root = Principal::parse(ROOT).unwrap();
    let of_root = |world: &World| {
        let acts = world.machine.audit();
        acts.filter(|act| act.principal.as_ref() == Some(&root))
            .count()
    };
    assert_eq!(of_root(&world), by_root);
    let evil = |world: &World| world.machine.audit().any(|act| act.act.contains("evil"));
    assert!(evil(&world));
    // A reader behind an index hears whether acts behind it are gone.
    let indices: Vec<u64> = world.machine.audit().map(|act| act.index).collect();
    let gone_until = indices[by_root] - 1;
    assert!(world.machine.audit_may_lack_after(indices[0]));
    assert!(world.machine.audit_may_lack_after(indices[by_root - 1]));
    assert!(!world.machine.audit_may_lack_after(gone_until));

    let (below, _) = flood(LEVEL_OBJECTS);
    assert_eq!(of_root(&below), 0);
    assert!(!evil(&below));
}

impl World {
    fn restore_now_and_then(&mut self) {
        if self.machine.index().is_multiple_of(512) {
            self.restore();
        }
    }
}
