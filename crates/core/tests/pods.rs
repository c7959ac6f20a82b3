//! Sessions that last as long as a Pod.
#![allow(clippy::unwrap_used)]

mod world;

use ringfence_core::{
    ClusterTime, Command, Event, Identity, OpenForPod, OpenId, Outcome, Pod, PodSeen, PodText,
    Rejection, Secret, SessionEnd,
};
use world::{World, opened};

/// What becomes of the `Open` of a process that knew this cluster time.
fn open(world: &mut World, id: u8, seen: Option<u64>) -> Outcome {
    let text = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "0a1b2c3d-0000-4000-8000-000000000001",
        container: "main",
    };
    world.apply(Command::OpenForPod(OpenForPod {
        id: OpenId::new([id; 16]),
        secret: Secret::new([id; 16]),
        seen: seen.map(ClusterTime),
        identity: Identity::parse("controller").unwrap(),
        pod: Pod::parse(text).unwrap(),
    }))
}

#[test]
fn a_container_that_starts_again_ends_the_session_of_its_life_before() {
    let mut world = World::new();
    world.time = ClusterTime(1_000);
    let former = opened(open(&mut world, 1, Some(900)));
    world.time = ClusterTime(2_000);
    opened(open(&mut world, 2, Some(1_001)));
    let ended = world.events.iter().any(|event| {
        let Event::SessionEnded { session, cause } = event else {
            return false;
        };
        let restarted = matches!(
            cause,
            SessionEnd::PodEnded {
                seen: PodSeen::Restarted,
                ..
            }
        );
        *session == former && restarted
    });
    assert!(ended, "{:?}", world.events);
}

#[test]
fn the_late_open_of_a_process_that_is_over_does_not_end_its_successor() {
    let mut world = World::new();
    world.time = ClusterTime(1_000);
    // One process asks at 900 and dies, its container starts again, and the next one is faster.
    let successor = opened(open(&mut world, 2, Some(950)));
    for seen in [None, Some(900), Some(1_000)] {
        world.time = ClusterTime(world.time.0 + 500);
        let refused = open(&mut world, 1, seen);
        let too_old = matches!(refused, Outcome::Rejected(Rejection::OpenTooOld { .. }));
        assert!(too_old, "seen {seen:?}: {refused:?}");
        assert_eq!(world.machine.pods().count(), 1);
        assert!(world.machine.session(successor).is_some());
    }
}

#[test]
fn no_time_ends_it_and_its_own_repeat_finds_it() {
    let mut world = World::new();
    let session = opened(open(&mut world, 1, None));
    world.time = ClusterTime(1_000_000_000);
    world.apply(Command::Tick);
    assert_eq!(opened(open(&mut world, 1, None)), session);
}
