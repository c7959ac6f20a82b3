//! The log on the operating system's files, with its threads.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use ringfence_wal::sim::{Fault, SimFs};
use ringfence_wal::{
    Done, EntryId, Fs as _, FsLock, LogEntry, OpenError, Options, RealFs, Recovered, Wal, WalError,
};
use tempfile::TempDir;

fn options() -> Options {
    Options {
        segment_bytes: 64 * 1024,
        ..Options::new(*b"cluster-1 node-1")
    }
}

fn entry(term: u64, index: u64, payload: &[u8]) -> LogEntry {
    LogEntry {
        id: EntryId { term, index },
        payload: Bytes::copy_from_slice(payload),
    }
}

fn done() -> (Done, Receiver<Result<(), WalError>>) {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    (done, receiver)
}

fn append(wal: &Wal, entries: Vec<LogEntry>) -> Result<(), WalError> {
    let (done, result) = done();
    wal.append(entries, done);
    result.recv().unwrap()
}

fn save_vote(wal: &Wal, vote: &[u8]) {
    let (done, result) = done();
    wal.save_vote(vote.to_vec(), done);
    result.recv().unwrap().unwrap();
}

fn reopen(dir: &TempDir) -> (Wal, Recovered) {
    Wal::open(dir.path(), options()).unwrap()
}

#[test]
fn an_empty_log_opens_empty_twice() {
    let dir = TempDir::new().unwrap();

    let (wal, recovered) = reopen(&dir);
    assert_eq!(recovered, Recovered::default());
    wal.close();

    let (_, recovered) = reopen(&dir);
    assert_eq!(
        recovered,
        Recovered {
            log_bytes: own_bytes(&recovered),
            ..Recovered::default()
        }
    );
}

/// What a log takes without an entry: the header of a segment, and a few batches, each in blocks of
/// its own.
fn own_bytes(recovered: &Recovered) -> u64 {
    let bytes = recovered.log_bytes;
    assert!((4 * 1024..64 * 1024).contains(&bytes), "{recovered:?}");
    bytes
}

#[test]
fn a_log_with_only_a_vote_gives_it_back() {
    let dir = TempDir::new().unwrap();
    let (wal, _) = reopen(&dir);
    save_vote(&wal, b"term 3 for node 2");
    wal.close();

    let (_, recovered) = reopen(&dir);

    assert_eq!(
        recovered,
        Recovered {
            vote: Some(b"term 3 for node 2".to_vec()),
            log_bytes: own_bytes(&recovered),
            ..Recovered::default()
        }
    );
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let (wal, _) = reopen(&dir);
    append(&wal, (0..10).map(|i| entry(1, i, b"first")).collect()).unwrap();
    save_vote(&wal, b"v2");
    let (cut, was_cut) = channel();
    let done = Box::new(move |result| cut.send(result).unwrap());
    wal.truncate_after(Some(EntryId { term: 1, index: 6 }), done);
    was_cut.recv().unwrap().unwrap();
    append(&wal, vec![entry(2, 7, b"second")]).unwrap();
    wal.purge(EntryId { term: 1, index: 4 });
    wal.save_committed(6, b"up to 6".to_vec());
    wal.close();

    let (_, recovered) = reopen(&dir);

    assert_eq!(recovered.vote.as_deref(), Some(&b"v2"[..]));
    assert_eq!(recovered.committed.as_deref(), Some(&b"up to 6"[..]));
    assert_eq!(recovered.purged, Some(EntryId { term: 1, index: 4 }));
    assert_eq!(recovered.last, Some(EntryId { term: 2, index: 7 }));
    let expected = vec![
        entry(1, 5, b"first"),
        entry(1, 6, b"first"),
        entry(2, 7, b"second"),
    ];
    assert_eq!(recovered.entries, expected);
    assert_eq!(recovered.truncated_tail_bytes, 0);
}

#[test]
fn reads_give_at_least_one_entry_and_keep_to_the_limit() {
    let dir = TempDir::new().unwrap();
    let (wal, _) = reopen(&dir);
    for i in 0..200 {
        append(&wal, vec![entry(1, i, &[i as u8; 1000])]).unwrap();
    }
    assert!(
        wal.stats().live_segments > 2,
        "the scenario must span segments"
    );

    let all = wal.read(0, 200, u64::MAX).unwrap();
    assert_eq!(all.len(), 200);
    assert!(
        all.iter()
            .zip(0..)
            .all(|(e, i)| *e == entry(1, i, &[i as u8; 1000]))
    );
    assert_eq!(wal.read(7, 200, 0).unwrap(), vec![entry(1, 7, &[7; 1000])]);
    assert_eq!(wal.read(7, 200, 3 * 1025).unwrap().len(), 3);
    assert_eq!(wal.read(7, 9, u64::MAX).unwrap().len(), 2);
    assert_eq!(wal.read(200, 300, u64::MAX).unwrap(), vec![]);

    wal.purge(EntryId { term: 1, index: 99 });
    save_vote(&wal, b"ordered behind the purge");
    assert_eq!(wal.read(0, 200, u64::MAX).unwrap(), all[100..]);
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let (_wal, _) = reopen(&dir);

    let error = Wal::open(dir.path(), options()).err().unwrap();

    let text = error.to_string();
    assert!(matches!(error, OpenError::Locked { .. }), "{text}");
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    assert!(text.contains(dir.path().to_str().unwrap()), "{text}");
}

#[test]
fn a_lock_that_is_let_go_a_moment_later_is_waited_for() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("lock");
    let FsLock::Held(first) = RealFs.lock(&path).unwrap() else {
        panic!("nobody has it");
    };
    let (_asking, asked) = channel::<()>();
    let letting_go = std::thread::spawn(move || {
        // Nothing comes: this is a wait while the other one tries.
        let _nothing = asked.recv_timeout(Duration::from_millis(60));
        drop(first);
    });
    assert!(matches!(RealFs.lock(&path).unwrap(), FsLock::Held(_)));
    letting_go.join().unwrap();
}

/// Root opens it in a directory of an account that may write less.
#[test]
fn a_lock_that_is_a_link_is_refused_and_its_target_stays_as_it_is() {
    let dir = TempDir::new().unwrap();
    let (target, missing) = (dir.path().join("target"), dir.path().join("missing"));
    std::fs::write(&target, "another's").unwrap();
    for (link, to) in [("lock", &target), ("other", &missing)] {
        let path = dir.path().join(link);
        std::os::unix::fs::symlink(to, &path).unwrap();
        assert!(RealFs.lock(&path).is_err(), "{link}");
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"another's");
    assert!(!missing.exists());
}

#[test]
fn a_directory_of_another_identity_is_refused_with_both_shown() {
    let dir = TempDir::new().unwrap();
    drop(reopen(&dir));

    let error = Wal::open(dir.path(), Options::new([0xAB, 0xCD]))
        .err()
        .unwrap();

    let text = error.to_string();
    assert!(
        matches!(error, OpenError::IdentityMismatch { .. }),
        "{text}"
    );
    assert!(
        text.contains("abcd") && text.contains("636c7573746572"),
        "{text}"
    );
}

#[test]
fn a_missing_directory_and_a_file_in_its_place_are_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();

    for path in [dir.path().join("absent"), file] {
        let error = Wal::open(&path, options()).err().unwrap();
        assert!(matches!(error, OpenError::NotADirectory { .. }), "{error}");
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let dir = TempDir::new().unwrap();
    let refused = [
        Options {
            segment_bytes: 4096,
            ..options()
        },
        Options {
            segment_bytes: 64 * 1024 + 1,
            ..options()
        },
        Options {
            segment_bytes: 1 << 40,
            ..options()
        },
        Options {
            spare_segments: 0,
            ..options()
        },
        Options {
            spare_segments: 17,
            ..options()
        },
        Options::new(vec![7; 257]),
    ];
    for options in refused {
        let shown = format!("{options:?}");
        let error = Wal::open(dir.path(), options).err().unwrap();
        assert!(
            matches!(error, OpenError::InvalidOption { .. }),
            "{shown}: {error}"
        );
    }
}

#[test]
fn purged_segments_are_used_again_under_load() {
    let dir = TempDir::new().unwrap();
    let (wal, _) = reopen(&dir);
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let mut most = 0;

    for i in 0..600 {
        append(&wal, vec![entry(1, i, &[i as u8; 4000])]).unwrap();
        if i % 20 == 19 {
            wal.purge(EntryId {
                term: 1,
                index: i - 10,
            });
        }
        most = most.max(files());
    }

    // 37 segments were filled; at most three were live at a time, beside the spares, those on
    // their way to be recycled and the lock.
    save_vote(&wal, b"ordered behind the last purge");
    assert!(most < 20, "{most} files");
    assert!(wal.stats().live_segments <= 4);
    assert_eq!(wal.read(0, 600, u64::MAX).unwrap().len(), 10);
    wal.close();
    let (_, recovered) = reopen(&dir);
    assert_eq!(recovered.entries.len(), 10);
    assert_eq!(
        recovered.last,
        Some(EntryId {
            term: 1,
            index: 599
        })
    );
}

#[test]
fn a_log_whose_segments_change_size_takes_the_larger_entries() {
    let dir = TempDir::new().unwrap();
    let (wal, _) = reopen(&dir);
    append(&wal, vec![entry(1, 0, b"small")]).unwrap();
    wal.close();

    let larger = Options {
        segment_bytes: 256 * 1024,
        ..options()
    };
    let (wal, _) = Wal::open(dir.path(), larger).unwrap();
    append(&wal, vec![entry(1, 1, &[1; 200_000])]).unwrap();
    wal.close();

    let (wal, recovered) = reopen(&dir);
    assert_eq!(recovered.entries.len(), 2);
    let error = append(&wal, vec![entry(1, 2, &[1; 200_000])]).unwrap_err();
    assert!(matches!(error, WalError::EntryTooLarge { .. }), "{error}");
}

#[test]
fn a_fatal_error_aborts_the_process_with_a_clear_message() {
    const CHILD: &str = "RINGFENCE_WAL_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let fs = SimFs::with_dir(Path::new("/log"));
        let (wal, _) = Wal::open_in(Arc::new(fs.clone()), Path::new("/log"), options()).unwrap();
        for nth in 0..10 {
            fs.plant(Fault::Sync(fs.syncs() + nth, ErrorKind::Other));
        }
        let told = append(&wal, vec![entry(1, 0, b"lost")]);
        panic!("nobody may hear of the failure before the process ends: {told:?}");
    }

    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_fatal_error_aborts_the_process_with_a_clear_message",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();

    let stderr = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(6), "SIGABRT: {stderr}");
    assert!(
        stderr.contains("fatal: cannot sync /log/0000000000000001.wal"),
        "{stderr}"
    );
    assert!(stderr.contains("start again"), "{stderr}");
}
