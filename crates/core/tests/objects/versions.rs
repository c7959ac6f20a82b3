//! Versions, deletions and records of objects.

use ringfence_core::snapshot::Record;
use ringfence_core::{Millis, ObjectWrite, Outcome, Rejection, Revoke, StateMachine};

use crate::bench::{Bench, LONG, ONE, TWO, name, put, rejection, written};

#[test]
fn a_write_on_an_older_version_changes_nothing() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    let old = bench.version();
    bench.acquire(ONE);
    let spec = bench.spec(ONE.identity);
    let before = bench.object();
    let refused = rejection(bench.write_at(old, ONE, put(Some(spec))));
    assert_eq!(
        refused,
        Rejection::ObjectChanged {
            present: bench.version()
        }
    );
    assert_eq!(bench.object(), before);
    let spec = bench.spec(TWO.identity);
    let refused = rejection(bench.write_at(None, TWO, put(Some(spec))));
    assert!(matches!(refused, Rejection::ObjectChanged { .. }));
}

#[test]
fn another_ones_deletion_needs_a_revoke_and_the_next_grant_waits() {
    let mut bench = Bench::new();
    let token = bench.acquire(ONE);
    let version = bench.version();
    let refused = bench.write_at(version, TWO, ObjectWrite::Delete { revoke: None });
    assert!(matches!(rejection(refused), Rejection::Held { .. }));
    let revoke = Revoke {
        name: name(),
        token,
        now: false,
        reason: "kubectl delete".to_owned(),
        operator: String::new(),
    };
    let revoke = Some(revoke);
    let deleted = bench.write_at(version, TWO, ObjectWrite::Delete { revoke });
    assert!(matches!(deleted, Outcome::Object(_)), "{deleted:?}");
    let refused = rejection(bench.put(TWO, TWO.identity));
    assert!(matches!(refused, Rejection::Revoking { .. }), "{refused:?}");
    bench.pass(Millis(15_000));
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn versions_only_rise_and_name_each_change() {
    let mut bench = Bench::new();
    let mut last = 0;
    for round in 0..50 {
        let by = if round % 2 == 0 { ONE } else { TWO };
        bench.acquire(by);
        let acquired = bench.version().unwrap();
        assert!(acquired > last);
        let changed: Vec<_> = bench.world.machine.objects_changed_after(last).collect();
        assert_eq!(changed, [(acquired, &name())]);
        bench.put(by, "");
        last = bench.version().unwrap();
        assert!(last > acquired);
    }
    let deleted = bench.write_at(Some(last), ONE, ObjectWrite::Delete { revoke: None });
    let gone = written(&deleted).object.version;
    assert!(gone > last);
    let machine = &bench.world.machine;
    assert_eq!(machine.objects_changed_after(0).count(), 0);
    assert_eq!(machine.objects_gone_after(last).count(), 1);
    assert_eq!(machine.objects_gone_after(gone).count(), 0);
}

#[test]
fn a_state_with_objects_is_restored_from_its_records() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    bench.pass(LONG);
    bench.acquire(TWO);
    bench.put(ONE, ONE.identity);
    let records: Vec<Record> = bench.world.machine.records().collect();
    let owing = records
        .iter()
        .any(|record| matches!(record, Record::Owing(_)));
    assert!(owing, "{records:?}");
    let restored = StateMachine::restore(records.clone()).unwrap();
    let again: Vec<Record> = restored.records().collect();
    assert_eq!(again, records);
    assert_eq!(restored.object(&name()), bench.object());
}
