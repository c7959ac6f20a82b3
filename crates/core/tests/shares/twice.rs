//! A name that is blocked and a wait for it, or its loss, are one.

use ringfence_core::{Acquired, Command, FencingToken, LEVEL_RESTORE, Outcome, Renew, SessionId};

use crate::bench::{ALICE, BOB, is_granted, is_waiting};
use crate::world::World;

fn token(outcome: Outcome) -> (SessionId, FencingToken) {
    let Outcome::Acquired(Acquired::Granted(granted)) = outcome else {
        panic!("{outcome:?}");
    };
    (granted.session, granted.token)
}

/// An HA pair: the standby waits when the holder dies with a lock-delay. The wait counts, and the
/// block does not, whichever came first.
#[test]
fn a_block_does_not_count_while_its_principal_waits_since_before() {
    for before in [false, true] {
        let mut world = World::shared(LEVEL_RESTORE, 2);
        world.open(Some(BOB), 3, 1);
        let granted = world.acquire_by(Some(BOB), 3, "job", 60);
        assert!(is_granted(&granted));
        if before {
            assert!(is_waiting(&world.wait(Some(BOB), 2, "job", 100)));
        }
        world.pass(1);
        if !before {
            assert!(is_waiting(&world.wait(Some(BOB), 2, "job", 100)));
        }
        let other = world.acquire(2, "other", 0);
        assert!(
            is_granted(&other),
            "waits since before the block: {before}: {other:?}"
        );
    }
}

/// The loss of a revoked lease is still noted; a wait of its principal for it comes and goes.
#[test]
fn a_revoked_lease_counts_once_after_a_wait_for_it() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    world.open(Some(ALICE), 3, 300);
    let (_, lost) = token(world.acquire(1, "job", 0));
    assert_eq!(world.revoke(BOB, "job", lost, false), Outcome::Done);
    assert!(is_waiting(&world.wait(Some(ALICE), 3, "job", 1)));
    world.pass(1);
    let other = world.acquire_by(Some(ALICE), 3, "other", 0);
    assert!(is_granted(&other), "{other:?}");
}

/// The usual way of a revoke with a standby: the holder acknowledges while the standby waits.
#[test]
fn a_block_does_not_count_while_its_principal_waits_and_the_loss_is_acknowledged() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    world.open(Some(ALICE), 3, 300);
    let (session, lost) = token(world.acquire(1, "job", 60));
    assert_eq!(world.revoke(BOB, "job", lost, false), Outcome::Done);
    assert!(is_waiting(&world.wait(Some(ALICE), 3, "job", 100)));
    world.apply(Command::Renew(Renew {
        sessions: vec![],
        acknowledged: vec![(session, lost)],
    }));
    let other = world.acquire_by(Some(ALICE), 3, "other", 0);
    assert!(is_granted(&other), "{other:?}");
}

/// The holder is in a Pod that does not answer; no time ends this.
#[test]
fn a_revoked_lease_of_a_pod_counts_once_for_ever() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    world.open_for_pod(ALICE, 3);
    let (_, lost) = token(world.acquire_by(Some(ALICE), 3, "job", 0));
    world.revoke(BOB, "job", lost, false);
    let granted = world.acquire(1, "other", 0);
    let (_, held) = token(granted);
    world.release(1, "other", held);
    // One wait in vain, and there is no room any more.
    let waits = world.wait(Some(ALICE), 1, "job", 1);
    assert!(is_waiting(&waits), "{waits:?}");
    world.pass(1);
    world.pass(86_000);
    world.open(Some(ALICE), 4, 300);
    let other = world.acquire_by(Some(ALICE), 4, "other", 0);
    assert!(is_granted(&other), "a day later: {other:?}");
}

/// Its name and its loss displace no floor while there is room.
#[test]
fn a_revoked_lease_displaces_no_floor() {
    let mut world = World::shared(LEVEL_RESTORE, 2);
    let (_, lost) = token(world.acquire(1, "job", 0));
    world.revoke(BOB, "job", lost, true);
    world.take(1, "other");
    assert_eq!(world.names(), ["job", "other"]);
}
