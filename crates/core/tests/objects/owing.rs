//! A process that slept through the end of its term is kept from a second one inside the first.

use ringfence_core::{Millis, ObjectWrite, Outcome, Rejection};

use crate::bench::{Bench, LONG, ONE, TWO, rejection};

#[test]
fn a_process_that_slept_through_its_loss_is_refused_for_one_duration() {
    let mut bench = Bench::new();
    let first = bench.acquire(ONE);
    bench.pass(LONG);
    // It wakes into its old term, however much later.
    for _ in 0..9 {
        let refused = rejection(bench.put(ONE, ONE.identity));
        assert!(matches!(refused, Rejection::Owing { .. }), "{refused:?}");
        bench.pass(Millis::from_secs(1));
    }
    assert_eq!(bench.holder(), None);
    // Others are not kept waiting.
    let second = bench.acquire(TWO);
    assert!(second > first);
    bench.put(TWO, "");
    bench.pass(Millis::from_secs(1));
    assert!(bench.acquire(ONE) > second);
}

#[test]
fn what_is_owed_survives_a_deletion() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    bench.pass(LONG);
    let version = bench.version();
    let deleted = bench.write_at(version, TWO, ObjectWrite::Delete { revoke: None });
    assert!(matches!(deleted, Outcome::Object(_)), "{deleted:?}");
    assert_eq!(bench.object(), None);
    let refused = rejection(bench.put(ONE, ONE.identity));
    assert!(matches!(refused, Rejection::Owing { .. }), "{refused:?}");
}

#[test]
fn who_released_owes_nothing() {
    let mut bench = Bench::new();
    let first = bench.acquire(ONE);
    bench.put(ONE, "");
    assert!(bench.acquire(ONE) > first);
}
