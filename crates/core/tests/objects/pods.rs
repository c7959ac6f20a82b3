//! Terms that end with the Pod of their holder.

use ringfence_core::snapshot::Record;
use ringfence_core::{Command, Pod, PodEnded, PodSeen, PodUid, StateMachine};

use crate::bench::{Bench, ONE, TWO, pod};

#[test]
fn the_end_of_a_pod_ends_the_grant_of_the_elector_in_it() {
    let mut bench = Bench::new();
    bench.watches = true;
    let token = bench.acquire(ONE);
    let pods: Vec<&Pod> = bench.world.machine.pods().collect();
    assert_eq!(pods, [&pod("uid-1")]);
    // The restored state knows what it ends with.
    let records: Vec<Record> = bench.world.machine.records().collect();
    bench.world.machine = StateMachine::restore(records).unwrap();
    for uid in ["uid-2", "uid-1"] {
        assert_eq!(bench.holder().as_deref(), Some("one"));
        let uid = PodUid::parse(uid).unwrap();
        let seen = PodSeen::Gone;
        bench.world.apply(Command::PodEnded(PodEnded { uid, seen }));
    }
    assert_eq!(bench.holder(), None);
    assert!(
        !bench
            .world
            .machine
            .has_pod(&PodUid::parse("uid-1").unwrap())
    );
    assert_eq!(bench.world.machine.pods().count(), 0);
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn what_no_leader_watches_ends_with_no_pod() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    assert_eq!(bench.world.machine.pods().count(), 0);
    // It renews under a node that knows that its Pod is watched.
    bench.watches = true;
    bench.acquire(ONE);
    assert!(
        bench
            .world
            .machine
            .has_pod(&PodUid::parse("uid-1").unwrap())
    );
    bench.put(ONE, "");
    assert_eq!(bench.world.machine.pods().count(), 0);
}
