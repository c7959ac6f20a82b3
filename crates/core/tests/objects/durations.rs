//! A holder that changes the duration of its lease.

use ringfence_core::{
    LEVEL_RESTORE, Millis, ObjectSpec, ObjectWrite, ObjectWritten, Rejection, Revoke,
};

use crate::bench::{Bench, ONE, TWO, held, name, put, rejection, written};

/// One renews with a duration of so many seconds.
fn renew(bench: &mut Bench, seconds: u32) -> ObjectWritten {
    let (version, spec) = (bench.version(), bench.spec(ONE.identity));
    let done = bench.write_at(version, ONE, put(Some(ObjectSpec { seconds, ..spec })));
    written(&done).clone()
}

#[test]
fn a_longer_duration_counts_at_once_and_a_shorter_one_from_the_promised_end() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    bench.acquire(ONE);
    renew(&mut bench, 20);
    bench.pass(Millis(29_999));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    renew(&mut bench, 20);
    let shorter = renew(&mut bench, 5);
    let ttl = shorter.held.map(|(_, ttl)| ttl);
    assert_eq!(ttl, Some(Millis(7_500)), "what the holder may believe");
    // It was promised 30 s, and keeps them.
    bench.pass(Millis(22_400));
    renew(&mut bench, 5);
    bench.pass(Millis(7_599));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    renew(&mut bench, 5);
    bench.pass(Millis(7_499));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    bench.pass(Millis(1));
    assert_eq!(bench.holder(), None);
}

#[test]
fn a_shorter_duration_lets_no_other_in_before_the_promised_end() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    bench.acquire(ONE);
    let token = held(&bench.put(ONE, ONE.identity)).unwrap();
    renew(&mut bench, 2);
    let revoke = Some(Revoke {
        name: name(),
        token,
        now: false,
        reason: String::new(),
        operator: String::new(),
    });
    let version = bench.version();
    bench.write_at(version, TWO, ObjectWrite::Delete { revoke });
    // What the answer to its last write but one has promised.
    bench.pass(Millis(14_999));
    let refused = rejection(bench.put(TWO, TWO.identity));
    assert!(matches!(refused, Rejection::Revoking { .. }), "{refused:?}");
    bench.pass(Millis(1));
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn below_the_level_a_shorter_duration_changes_nothing() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    renew(&mut bench, 5);
    bench.pass(Millis(14_999));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    bench.pass(Millis(1));
    assert_eq!(bench.holder(), None);
}
