//! Names that are granted to no session for a while: who they count for, and that they count once.

use ringfence_core::{
    Acquired, Command, LEVEL_RESTORE, Limit, Outcome, Rejection, Renew, SessionId,
};

use crate::bench::{ALICE, BOB, is_granted, is_waiting};
use crate::world::World;

fn full(limit: u64) -> Outcome {
    Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(limit)))
}

/// Bob's lock-delays are Bob's, and he has no more leases while they last.
#[test]
fn who_waits_in_vain_for_what_another_blocks_pays_nothing_for_it() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    world.open(Some(BOB), 3, 1);
    for lease in ["bobs/0", "bobs/1", "bobs/2"] {
        let granted = world.acquire_by(Some(BOB), 3, lease, 60);
        assert!(is_granted(&granted), "{granted:?}");
    }
    world.pass(1);
    for lease in ["bobs/0", "bobs/1", "bobs/2"] {
        let waits = world.wait(Some(ALICE), 1, lease, 1);
        assert!(is_waiting(&waits), "{waits:?}");
        assert_eq!(world.acquire(2, "more", 0), full(3), "while alice waits");
    }
    world.pass(1);
    assert_eq!(world.acquire(2, "more", 0), full(3), "after alice waited");
    world.restore();
    for lease in ["a", "b", "c"] {
        let granted = world.acquire(1, lease, 0);
        assert!(is_granted(&granted), "{granted:?}");
    }
    assert_eq!(world.acquire(1, "d", 0), full(3));
    world.pass(59);
    assert!(is_granted(&world.acquire(2, "more", 0)));
}

/// A process that crashed comes back and waits for what its own lock-delay keeps from it.
#[test]
fn who_waits_for_what_its_own_grants_block_needs_no_more_room() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    world.open(Some(BOB), 3, 1);
    let leases = ["bobs/0", "bobs/1", "bobs/2"];
    for lease in leases {
        world.acquire_by(Some(BOB), 3, lease, 60);
    }
    world.pass(1);
    for lease in leases {
        let waits = world.wait(Some(BOB), 2, lease, 100);
        assert!(is_waiting(&waits), "{lease}: {waits:?}");
        world.restore();
    }
    // A second wait for the same name is one more.
    assert_eq!(world.wait(Some(BOB), 2, "bobs/0", 100), full(3));
    assert_eq!(world.acquire(2, "more", 0), full(3));
    world.pass(60);
    assert_eq!(world.machine.summary().held, 3);
}

#[test]
fn a_wait_that_ends_leaves_the_block_to_count() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    world.open(Some(BOB), 3, 1);
    world.acquire_by(Some(BOB), 3, "bobs/0", 60);
    world.pass(1);
    for _ in 0..3 {
        let waits = world.wait(Some(BOB), 2, "bobs/0", 1);
        assert!(is_waiting(&waits), "{waits:?}");
        world.pass(1);
    }
    assert!(is_granted(&world.acquire(2, "more", 0)));
    assert_eq!(world.acquire(2, "another", 0), full(2));
}

#[test]
fn a_revoked_lease_counts_once() {
    for now in [false, true] {
        let mut world = World::shared(LEVEL_RESTORE, 2);
        let Outcome::Acquired(Acquired::Granted(granted)) = world.acquire(1, "job", 60) else {
            panic!("it is free");
        };
        assert_eq!(world.revoke(BOB, "job", granted.token, now), Outcome::Done);
        world.restore();
        let other = world.acquire(1, "other", 0);
        assert!(is_granted(&other), "{other:?}");
        assert_eq!(world.acquire(1, "third", 0), full(2));
        // Acknowledged it is no loss any more, and still blocked.
        let renew = Renew {
            sessions: vec![],
            acknowledged: vec![(granted.session, granted.token)],
        };
        world.apply(Command::Renew(renew));
        assert_eq!(world.machine.lost(granted.session), []);
        assert_eq!(world.acquire(1, "third", 0), full(2));
        world.restore();
        assert_eq!(world.acquire(1, "third", 0), full(2));
        world.pass(60);
        assert!(is_granted(&world.acquire(1, "third", 0)));
    }
}

/// Its losses go with it, and what they block goes on.
#[test]
fn a_session_that_is_evicted_leaves_what_it_lost_to_count() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    for lease in ["a", "b"] {
        let token = world.take(1, lease);
        assert_eq!(world.revoke(BOB, lease, token, false), Outcome::Done);
    }
    world.evict(BOB, 1);
    world.open(Some(ALICE), 3, 300);
    let refused = world.acquire_by(Some(ALICE), 3, "c", 0);
    assert_eq!(refused, full(2));
    world.pass(300);
    let again = world.open(Some(ALICE), 4, 300);
    assert_eq!(again, SessionId::new(4).unwrap());
    let granted = world.acquire_by(Some(ALICE), 4, "c", 0);
    assert!(is_granted(&granted), "{granted:?}");
}

/// A holder in a Pod is revoked and does not answer: no time ends that block.
#[test]
fn who_waited_in_vain_does_not_pay_for_ever() {
    let mut world = World::shared(LEVEL_RESTORE, 1);
    world.open_for_pod(BOB, 3);
    let Outcome::Acquired(Acquired::Granted(granted)) = world.acquire_by(Some(BOB), 3, "bobs", 0)
    else {
        panic!("it is free");
    };
    let waits = world.wait(Some(ALICE), 1, "bobs", 1);
    assert!(is_waiting(&waits), "{waits:?}");
    world.revoke(BOB, "bobs", granted.token, false);
    for number in 4..7 {
        world.pass(3_600);
        world.open(Some(ALICE), number, 300);
        let granted = world.acquire_by(Some(ALICE), number, "alices", 0);
        assert!(is_granted(&granted), "{granted:?}");
    }
    // Bob has it until an operator vouches for the end of the process.
    world.open(Some(BOB), 7, 300);
    assert_eq!(world.acquire_by(Some(BOB), 7, "more", 0), full(1));
    world.evict(BOB, granted.session.get());
    let granted = world.acquire_by(Some(BOB), 7, "more", 0);
    assert!(is_granted(&granted), "{granted:?}");
}
