//! A log whose work is done step by step.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{EntryId, LogEntry, Options, Recovered, StepDriver, Wal};

const DIR: &str = "/wal";

fn open(files: &SimFs, rung: &Arc<AtomicUsize>) -> (Wal, StepDriver, Recovered) {
    let options = Options {
        segment_bytes: 64 << 10,
        on_fatal: Box::new(|_| {}),
        ..Options::new("stepped")
    };
    let rung = rung.clone();
    let bell = Box::new(move || {
        rung.fetch_add(1, Ordering::Relaxed);
    });
    Wal::open_stepped(Arc::new(files.clone()), Path::new(DIR), options, bell).unwrap()
}

fn disk() -> SimFs {
    SimFs::with_dir(Path::new(DIR))
}

fn append(wal: &Wal, index: u64, done: &Arc<Mutex<Vec<u64>>>) {
    let entry = LogEntry {
        id: EntryId { term: 1, index },
        payload: Bytes::from(vec![index as u8; 700]),
    };
    let done = done.clone();
    let tell = Box::new(move |result: Result<(), _>| {
        if result.is_ok() {
            done.lock().unwrap().push(index);
        }
    });
    wal.append(vec![entry], tell);
}

#[test]
fn a_call_is_done_when_its_batch_is_synced_and_not_before() {
    let (rung, done) = (Arc::default(), Arc::default());
    let (wal, mut steps, _) = open(&disk(), &rung);
    append(&wal, 1, &done);
    append(&wal, 2, &done);
    assert_eq!(rung.load(Ordering::Relaxed), 2);
    assert!(steps.write(), "both are one batch");
    append(&wal, 3, &done);
    assert_eq!(*done.lock().unwrap(), Vec::<u64>::new());
    steps.sync();
    assert_eq!(*done.lock().unwrap(), vec![2, 1], "newest first");
    wal.close();
    assert_eq!(
        *done.lock().unwrap(),
        vec![2, 1, 3],
        "closing does the rest"
    );
    assert!(!steps.goes_on());
    assert!(!steps.write(), "a closed log has no work");
}

/// The page that the last batch begins in is garbled whole; what was acknowledged is in others.
#[test]
fn garbage_in_the_last_batch_touches_no_acknowledged_one() {
    for seed in 0..100 {
        let (files, done) = (disk(), Arc::default());
        let (wal, mut steps, _) = open(&files, &Arc::default());
        for index in 1..=7 {
            append(&wal, index, &done);
            assert!(steps.write());
            if index < 7 {
                steps.sync();
            }
        }
        files.crash(Crash::Garble(seed));
        drop(wal);
        assert_eq!(done.lock().unwrap().len(), 6);
        let (wal, _, recovered) = open(&files, &Arc::default());
        let last = recovered.last.map(|last| last.index);
        assert!(last >= Some(6), "seed {seed}: the log ends at {last:?}");
        wal.close();
    }
}

#[test]
fn a_crash_between_the_steps_tears_the_batch_and_no_other() {
    let mut kept = [0; 3];
    for seed in 0..200 {
        let (files, done) = (disk(), Arc::default());
        let (wal, mut steps, _) = open(&files, &Arc::default());
        append(&wal, 1, &done);
        assert!(steps.write());
        steps.sync();
        append(&wal, 2, &done);
        append(&wal, 3, &done);
        assert!(steps.write());
        files.crash(Crash::Garble(seed));
        // What a dead process would do at its end comes to nothing.
        drop(wal);
        assert_eq!(*done.lock().unwrap(), vec![1]);
        let (wal, _, recovered) = open(&files, &Arc::default());
        let last = recovered.last.map(|last| last.index);
        let last = last.expect("what was acknowledged is there");
        kept[last as usize - 1] += 1;
        wal.close();
    }
    let [only_the_first, half, whole] = kept;
    assert!(only_the_first > 0 && whole > 0, "{kept:?}");
    assert_eq!(half, 0, "a batch is there or is not");
}
