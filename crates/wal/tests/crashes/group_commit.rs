//! What shares a sync, which caller is notified first, and what rides along.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{Done, EntryId, LogEntry, MAX_MARK_BYTES, Wal, WalError};

use crate::model::{Subject, dir, disk, open, options};

fn entry(index: u64, bytes: usize) -> LogEntry {
    LogEntry {
        id: EntryId { term: 1, index },
        payload: Bytes::from(vec![1; bytes]),
    }
}

fn reporting(sender: &Sender<Result<(), WalError>>) -> Done {
    let sender = sender.clone();
    Box::new(move |result| sender.send(result).unwrap())
}

#[test]
fn what_was_added_before_a_flush_shares_one_sync_and_the_newest_is_told_first() {
    let fs = disk();
    let (mut writer, _) = open(&fs).unwrap();
    let syncs = fs.syncs();
    let told = Arc::new(Mutex::new(Vec::new()));

    for index in 0..50 {
        let told = Arc::clone(&told);
        let done = Box::new(move |_| told.lock().unwrap().push(index));
        writer.append(vec![entry(index, 10)], done);
    }
    assert!(told.lock().unwrap().is_empty(), "nothing is durable yet");
    writer.flush();

    assert_eq!(fs.syncs(), syncs + 1);
    assert_eq!(*told.lock().unwrap(), (0..50).rev().collect::<Vec<_>>());
}

#[test]
fn appends_that_queue_behind_a_sync_share_the_next() {
    let fs = disk();
    let (wal, _) = Wal::open_in(Arc::new(fs), &dir(), options(&Arc::default())).unwrap();
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let (begin, begun) = channel();
    let (sender, results) = channel();
    // The first callback holds the writer back, as a slow sync would.
    let report = reporting(&sender);
    let first: Done = Box::new(move |result| {
        begin.send(()).unwrap();
        released.recv().unwrap();
        report(result);
    });

    wal.append(vec![entry(0, 10)], first);
    begun.recv().unwrap();
    let before = wal.stats().syncs;
    for index in 1..100 {
        wal.append(vec![entry(index, 10)], reporting(&sender));
    }
    release.send(()).unwrap();
    for _ in 0..100 {
        results.recv().unwrap().unwrap();
    }

    let stats = wal.stats();
    assert_eq!(stats.entries_appended, 100);
    assert_eq!(stats.syncs, before + 1, "one sync for all that queued");
    wal.close();
}

#[test]
fn a_committed_mark_waits_for_its_entry() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    let committed = |fs: &SimFs| {
        let copy = fs.fork();
        copy.crash(Crash::LoseAll);
        open(&copy).unwrap().1.committed.map(|mark| mark[0])
    };

    subject.append(1, vec![vec![1]; 4]);
    subject.commit(5);
    subject.flush();
    assert_eq!(committed(&fs), None, "entry 5 is not there");
    subject.append(1, vec![vec![1]]);
    subject.flush();
    assert_eq!(committed(&fs), None, "still not");
    subject.append(1, vec![vec![1]]);
    subject.flush();
    assert_eq!(committed(&fs), Some(5));

    subject.commit(2);
    let syncs = fs.syncs();
    subject.flush();
    assert_eq!(fs.syncs(), syncs, "a mark alone costs no sync");
    subject.close();
    assert_eq!(committed(&fs), Some(2), "a clean close takes it along");
}

#[test]
fn an_entry_too_large_is_refused_by_name_and_the_log_goes_on() {
    let fs = disk();
    let (mut writer, _) = open(&fs).unwrap();
    let (sender, results) = channel();

    writer.append(vec![entry(0, 10), entry(1, 32_000)], reporting(&sender));
    let error = results.recv().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            WalError::EntryTooLarge {
                bytes: 32_000,
                limit: 1..32_000,
                ..
            }
        ),
        "{error}"
    );

    writer.append(vec![entry(0, 10)], reporting(&sender));
    writer.flush();
    results.recv().unwrap().unwrap();
}

#[test]
fn the_largest_entry_allowed_fits_in_a_fresh_segment() {
    let fs = disk();
    let (mut writer, _) = open(&fs).unwrap();
    let (sender, results) = channel();
    writer.save_vote(vec![7; MAX_MARK_BYTES], reporting(&sender));
    writer.append(vec![entry(0, 32_000)], reporting(&sender));
    let Err(WalError::EntryTooLarge { limit, .. }) = results.recv().unwrap() else {
        panic!("32,000 bytes do not fit")
    };

    writer.save_committed(0, vec![8; MAX_MARK_BYTES]);
    for index in 0..3 {
        writer.append(vec![entry(index, limit as usize)], reporting(&sender));
    }
    writer.close();

    assert!(results.try_iter().all(|result| result.is_ok()));
    let (_, recovered) = open(&fs).unwrap();
    assert_eq!(recovered.entries.len(), 3);
    assert_eq!(recovered.committed, Some(vec![8; MAX_MARK_BYTES]));
}

#[test]
fn a_vote_too_large_is_refused_by_name() {
    let fs = disk();
    let (mut writer, _) = open(&fs).unwrap();
    let (sender, results) = channel();

    writer.save_vote(vec![0; MAX_MARK_BYTES + 1], reporting(&sender));

    let error = results.recv().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            WalError::VoteTooLarge {
                bytes: 1025,
                limit: 1024
            }
        ),
        "{error}"
    );
}

#[test]
fn an_append_with_a_hole_or_over_the_log_is_refused() {
    let fs = disk();
    let (mut writer, _) = open(&fs).unwrap();
    let (sender, results) = channel();
    writer.append(vec![entry(3, 1), entry(4, 1)], reporting(&sender));
    writer.flush();
    results.recv().unwrap().unwrap();

    for offered in [0, 4, 6] {
        writer.append(vec![entry(offered, 1)], reporting(&sender));
        let error = results.recv().unwrap().unwrap_err();
        let wanted = WalError::OutOfOrder {
            offered,
            expected: 5,
        };
        assert_eq!(error.to_string(), wanted.to_string());
    }
}
