//! Disks that refuse: no space, failed syncs, and what a process may believe afterwards.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use ringfence_wal::sim::{Crash, Fault};
use ringfence_wal::{EntryId, Fs, OpenError, WalError};

use crate::model::{SEGMENT_BYTES, State, Subject, disk, open};
use crate::scenario;

const STEPS: u64 = 70;

#[test]
fn no_space_at_any_write_loses_nothing_once_space_is_free() {
    // What the scenario ends with may be something that no caller waits for.
    let mut unharmed = Subject::new(&disk());
    scenario::run(&mut unharmed, 5, STEPS);
    for nth in 0.. {
        let fs = disk();
        fs.plant(Fault::Write(nth, ErrorKind::StorageFull));
        let mut subject = Subject::new(&fs);
        let opened = subject.writer.is_some();
        scenario::run(&mut subject, 5, STEPS);
        if fs.writes() <= nth {
            assert!(nth > 30, "the scenario has only {nth} writes");
            break;
        }
        if opened && !subject.fatal.load(Ordering::Relaxed) {
            // It was to prepare a segment, and was tried again.
            assert_eq!(
                subject.acknowledged(),
                unharmed.acknowledged(),
                "write {nth}"
            );
        }
        subject.writer = None;

        for crash in [Crash::ProcessOnly, Crash::LoseAll, Crash::Subset(nth)] {
            let copy = fs.fork();
            copy.crash(crash);
            let (_, recovered) = open(&copy).unwrap();
            subject.check(
                &State::default(),
                &recovered,
                &format!("write {nth}, {crash:?}"),
            );
        }
    }
}

/// A log whose file system has room for three segments.
#[test]
fn without_room_for_the_next_segment_calls_wait_in_their_order_and_the_log_goes_on() {
    let fs = disk();
    fs.set_capacity(Some(3 * SEGMENT_BYTES));
    let mut subject = Subject::new(&fs);
    for index in 0..30 {
        subject.append(1, vec![vec![1; 3000], vec![index; 500]]);
        subject.flush();
    }
    let waits_from = subject.acknowledged();
    assert!(waits_from > 9, "three segments' worth: {waits_from}");
    assert!(
        !subject.fatal.load(Ordering::Relaxed),
        "no end of the process"
    );
    assert!(subject.writer.as_ref().unwrap().is_stalled());
    subject.vote(b"behind what waits");
    subject.truncate(Some(EntryId { term: 1, index: 40 }));
    subject.append(2, vec![vec![2; 3000]]);
    subject.purge(EntryId { term: 1, index: 0 });
    subject.flush();
    assert_eq!(subject.acknowledged(), waits_from, "nothing overtakes");
    let copy = fs.fork();
    copy.crash(Crash::LoseAll);
    subject.check(
        &State::default(),
        &open(&copy).unwrap().1,
        "lost power while it waited",
    );

    fs.set_capacity(None);
    subject.flush();

    assert!(!subject.writer.as_ref().unwrap().is_stalled());
    let expected = subject.state.clone();
    drop(subject);
    fs.crash(Crash::LoseAll);
    assert_eq!(State::of(&open(&fs).unwrap().1), expected);
}

#[test]
fn a_full_disk_at_preallocation_holds_up_and_survives_a_restart() {
    let fs = disk();
    fs.set_capacity(Some(3 * SEGMENT_BYTES));
    let mut subject = Subject::new(&fs);
    for _ in 0..30 {
        subject.append(1, vec![vec![1; 3000]]);
        subject.flush();
    }
    assert!(
        subject.writer.as_ref().unwrap().is_stalled(),
        "30 entries do not fit in three segments"
    );
    let acknowledged = subject.acknowledged();
    assert!(acknowledged > 9, "three segments' worth: {acknowledged}");
    subject.writer = None;

    let error = open(&fs).err();
    assert!(
        error.is_none(),
        "the room left in the last segment is enough to start: {error:?}"
    );
    fs.set_capacity(None);
    let (mut resumed, recovered) = Subject::resume(&fs).unwrap();
    subject.check(&State::default(), &recovered, "after space was freed");
    resumed.append(1, vec![vec![2; 3000]]);
    resumed.flush();
    assert_eq!(resumed.acknowledged(), 1);
}

#[test]
fn no_space_for_the_first_segment_says_what_to_do() {
    let fs = disk();
    fs.set_capacity(Some(1000));

    let error = open(&fs).err().unwrap();

    let text = error.to_string();
    assert!(matches!(error, OpenError::Io { .. }), "{text}");
    assert!(
        text.contains("preallocate /log/new-0") && text.contains("free space"),
        "{text}"
    );
    assert_eq!(
        fs.paths(),
        [std::path::Path::new("/log/lock")],
        "the unfinished file is gone"
    );
}

#[test]
fn a_read_only_directory_is_refused_clearly() {
    let fs = disk();
    fs.plant(Fault::Write(0, ErrorKind::ReadOnlyFilesystem));

    let text = open(&fs).err().unwrap().to_string();

    assert!(text.contains("make the file system writable"), "{text}");
}

#[test]
fn after_one_failed_sync_nothing_succeeds_and_no_sync_is_tried() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    subject.append(1, vec![vec![1; 10]]);
    subject.flush();
    fs.plant(Fault::Sync(fs.syncs(), ErrorKind::Other));

    subject.append(1, vec![vec![2; 10]]);
    subject.flush();
    let syncs = fs.syncs();
    subject.append(1, vec![vec![3; 10]]);
    subject.vote(b"never");
    subject.flush();

    assert!(subject.fatal.load(Ordering::Relaxed));
    assert_eq!(subject.acknowledged(), 1);
    assert_eq!(fs.syncs(), syncs, "a failed sync is never tried again");
    let (sender, results) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    subject
        .writer
        .as_mut()
        .unwrap()
        .save_vote(b"x".to_vec(), done);
    let error = results.recv().unwrap().unwrap_err();
    assert!(matches!(error, WalError::Poisoned(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("cannot sync /log/0000000000000001.wal"),
        "{error}"
    );
    subject.close();
    assert_eq!(fs.syncs(), syncs, "not even at the end");
}

#[test]
fn pages_that_a_failed_sync_left_in_the_cache_are_not_believed() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    subject.append(1, vec![vec![1; 10]]);
    subject.flush();
    fs.plant(Fault::Sync(fs.syncs(), ErrorKind::Other));
    subject.append(1, vec![vec![2; 10]]);
    subject.flush();
    drop(subject);

    fs.crash(Crash::ProcessOnly);
    let (_, recovered) = open(&fs).unwrap();
    fs.crash(Crash::LoseAll);
    let (_, after_power_loss) = open(&fs).unwrap();

    assert_eq!(
        recovered.entries.len(),
        1,
        "the second never reached the medium"
    );
    assert_eq!(State::of(&recovered), State::of(&after_power_loss));
}

#[test]
fn a_failed_sync_at_any_point_loses_nothing_acknowledged() {
    for nth in 0.. {
        let fs = disk();
        fs.plant(Fault::Sync(nth, ErrorKind::Other));
        let mut subject = Subject::new(&fs);
        let opened = subject.writer.is_some();
        scenario::run(&mut subject, 6, STEPS);
        if opened && !subject.fatal.load(Ordering::Relaxed) {
            assert!(nth > 30, "sync {nth} of the scenario was no fatal failure");
            break;
        }
        subject.writer = None;

        for crash in [Crash::ProcessOnly, Crash::LoseAll, Crash::Garble(nth)] {
            let copy = fs.fork();
            copy.crash(crash);
            let (_, recovered) = open(&copy).unwrap();
            subject.check(
                &State::default(),
                &recovered,
                &format!("sync {nth}, {crash:?}"),
            );
        }
    }
}

#[test]
fn a_locked_simulated_log_is_refused_until_it_is_dropped() {
    let fs = disk();
    let (writer, _) = open(&fs).unwrap();

    let error = open(&fs).err().unwrap();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");

    drop(writer);
    open(&fs).unwrap();
    // The segment and the lock.
    assert_eq!(fs.list(std::path::Path::new("/log")).unwrap().len(), 2);
}
