//! A log can be looked at without being opened.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use bytes::Bytes;
use ringfence_wal::{EntryId, LogEntry, OpenError, Options, RealFs, Wal, read_back};

fn options() -> Options {
    Options {
        segment_bytes: 64 * 1024,
        ..Options::new(*b"somebody")
    }
}

fn entries() -> Vec<LogEntry> {
    let entry = |index: u64| LogEntry {
        id: EntryId { term: 1, index },
        payload: Bytes::from(index.to_string()),
    };
    (1..=20).map(entry).collect()
}

/// What lies in a directory, the lock aside.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| !path.ends_with("lock"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    };
    files.map(read).collect()
}

#[test]
fn a_log_is_read_back_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (wal, _) = Wal::open(dir.path(), options()).unwrap();
    let (done, written) = channel();
    wal.append(
        entries(),
        Box::new(move |result| done.send(result).unwrap()),
    );
    written.recv().unwrap().unwrap();

    let in_use = read_back(&RealFs, dir.path(), b"somebody").unwrap_err();
    assert!(matches!(in_use, OpenError::Locked { .. }), "{in_use}");
    drop(wal);

    let before = content(dir.path());
    let found = read_back(&RealFs, dir.path(), b"somebody").unwrap();
    assert_eq!(found.entries, entries());
    assert_eq!(content(dir.path()), before);

    let another = read_back(&RealFs, dir.path(), b"another_").unwrap_err();
    assert!(
        matches!(another, OpenError::IdentityMismatch { .. }),
        "{another}"
    );
}
