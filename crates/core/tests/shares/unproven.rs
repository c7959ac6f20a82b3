//! What callers had taken of whom nothing was proven, before rights bound.

use ringfence_core::{AccessChange, LEVEL_RESTORE, Limit, Mode, Outcome, Rejection, Verb};

use crate::bench::{ALICE, ROOT, allow, is_granted, is_waiting, limit};
use crate::world::World;

impl World {
    /// Session 1 was opened before rights bound, 2 is alice's, and 3 that of a caller without
    /// credential.
    fn bound_late(leases: u64) -> Self {
        let mut world = Self::formed(LEVEL_RESTORE, ringfence_core::Settings::STANDARD);
        world.open(None, 1, 300);
        world.change(vec![
            allow(ROOT, Verb::Admin, None),
            allow("cert:cn:*", Verb::Acquire, Some("*")),
            allow("anonymous", Verb::Acquire, Some("*")),
            limit(leases),
            AccessChange::SetMode(Mode::Enforced),
        ]);
        world.open(Some(ALICE), 2, 300);
        world.open(None, 3, 300);
        world
    }
}

#[test]
fn sessions_that_were_opened_before_rights_bound_share_the_limit_of_anonymous() {
    let mut world = World::bound_late(3);
    for (at, session) in [(0, 1), (1, 3), (2, 1)] {
        let granted = world.acquire_by(None, session, &format!("new/{at}"), 0);
        assert!(is_granted(&granted), "{granted:?}");
    }
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(3)));
    for session in [1, 3] {
        assert_eq!(world.acquire_by(None, session, "new/3", 0), full);
    }
    world.restore();
    assert_eq!(world.acquire_by(None, 1, "new/3", 0), full);
    // Who proves itself takes the session along, with what it has.
    let granted = world.acquire_by(Some(ALICE), 1, "alices/0", 0);
    assert!(is_granted(&granted), "{granted:?}");
    assert_eq!(world.acquire_by(Some(ALICE), 2, "alices/1", 0), full);
    let granted = world.acquire_by(None, 3, "new/3", 0);
    assert!(is_granted(&granted), "{granted:?}");
}

#[test]
fn names_that_such_sessions_used_are_those_of_anonymous() {
    let mut world = World::bound_late(3);
    let token = world.take_by(Some(ALICE), 2, "alices");
    world.release_by(Some(ALICE), 2, "alices", token);
    for at in 0..30 {
        world.time.0 += 1;
        let lease = format!("churn/{at:02}");
        let token = world.take_by(None, 1, &lease);
        world.release_by(None, 1, &lease, token);
    }
    let left = ["alices", "churn/27", "churn/28", "churn/29"];
    assert_eq!(world.names(), left);
}

#[test]
fn sessions_of_unproven_callers_count_for_anonymous_until_they_are_forgotten() {
    let mut world = World::bound_late(3);
    world.change(vec![AccessChange::SetLimits(
        ringfence_core::PrincipalLimits {
            sessions: 3,
            leases: 3,
        },
    )]);
    world.open(None, 4, 300);
    let refused = world.opening(None, 5, 300);
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalSessions(3)));
    assert_eq!(refused, full);
    world.pass(300);
    assert_eq!(
        world.opening(None, 6, 300),
        full,
        "ended, and not forgotten"
    );
    world.pass(60);
    world.apply(ringfence_core::Command::Tick);
    assert!(matches!(world.opening(None, 7, 300), Outcome::Opened(_)));
}

/// Sessions without a principal wait for what such sessions block, as those of a principal do.
#[test]
fn what_unproven_sessions_block_counts_once() {
    let mut world = World::bound_late(3);
    world.open(None, 4, 1);
    for lease in ["a", "b", "c"] {
        let granted = world.acquire_by(None, 4, lease, 60);
        assert!(is_granted(&granted), "{granted:?}");
    }
    world.pass(1);
    for lease in ["a", "b", "c"] {
        let waits = world.wait(None, 1, lease, 100);
        assert!(is_waiting(&waits), "{lease}: {waits:?}");
    }
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(3)));
    assert_eq!(world.wait(None, 1, "a", 100), full);
    assert_eq!(world.acquire_by(None, 3, "d", 0), full);
}

#[test]
fn what_unproven_sessions_lose_counts_once() {
    let mut world = World::bound_late(2);
    world.change(vec![allow(ROOT, Verb::Revoke, Some("*"))]);
    let lost = world.take_by(None, 1, "job");
    assert_eq!(world.revoke(ROOT, "job", lost, false), Outcome::Done);
    let other = world.acquire_by(None, 3, "other", 0);
    assert!(is_granted(&other), "{other:?}");
    // Who takes the session along pays for the loss, and anonymous for the block until it is over.
    let granted = world.acquire_by(Some(ALICE), 1, "alices", 0);
    assert!(is_granted(&granted), "{granted:?}");
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(2)));
    assert_eq!(world.acquire_by(Some(ALICE), 2, "more", 0), full);
    assert_eq!(world.acquire_by(None, 3, "more", 0), full);
    world.restore();
    assert_eq!(world.acquire_by(None, 3, "more", 0), full);
}
