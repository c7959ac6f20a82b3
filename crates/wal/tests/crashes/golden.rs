//! A log as it was written once: today's code writes the same bytes, and reads them.
//!
//! `RECORD=1 cargo test -p ringfence-wal` writes them again. A log that was written once is opened
//! for ever, so another byte here means a new version of the format, read beside this one.

use std::path::{Path, PathBuf};
use std::{env, fs};

use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{EntryId, Fs, Recovered};

use crate::model::{SEGMENT_BYTES, State, Subject, dir, disk, open};

/// Every kind of record, two terms, and a second segment.
fn write(log: &SimFs, entry_bytes: usize) -> State {
    let mut subject = Subject::new(log);
    subject.vote(b"term 1, node 2");
    // All of a short log may go.
    subject.append(0, vec![b"of another leader".to_vec()]);
    subject.flush();
    subject.truncate(None);
    subject.append(1, vec![b"first".to_vec(), b"second".to_vec()]);
    subject.flush();
    subject.commit(0);
    subject.append(1, vec![vec![], b"cut off again".to_vec()]);
    subject.flush();
    subject.truncate(Some(EntryId { term: 1, index: 2 }));
    subject.append(2, vec![b"in its place".to_vec()]);
    subject.flush();
    subject.purge(EntryId { term: 1, index: 1 });
    subject.commit(3);
    subject.append(2, vec![vec![0xaa; entry_bytes]]);
    subject.flush();
    subject.vote(b"term 3, node 1");
    subject.append(3, vec![vec![0x55; entry_bytes]]);
    subject.flush();
    assert_eq!(subject.acknowledged(), subject.ops.len());
    subject.state.clone()
}

/// A log of a version: its folder, the bytes of its segments, and of its long entries. In version 1
/// batches fill sectors, in version 2 pages.
type Golden = (&'static str, u64, usize);
const VERSION_1: Golden = ("log-v1", 16 * 1024, 8_500);
const VERSION_2: Golden = ("log-v2", SEGMENT_BYTES, 12_000);

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The content of a segment without the zeros that wait behind it.
fn written(content: &[u8]) -> &[u8] {
    let end = content.iter().rposition(|byte| *byte != 0);
    &content[..end.map_or(0, |last| last + 1)]
}

/// The segments of this length.
fn segments_of(log: &SimFs, bytes: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = log.paths().into_iter();
    let segments = paths.filter(|path| path.extension().is_some_and(|end| end == "wal"));
    segments
        .map(|path| (path.clone(), log.content(&path).unwrap()))
        .filter(|(_, content)| content.len() as u64 == bytes)
        .collect()
}

#[test]
fn a_log_is_written_as_ever() {
    let (name, _, entry_bytes) = VERSION_2;
    let log = disk();
    write(&log, entry_bytes);
    let segments = segments_of(&log, SEGMENT_BYTES);
    assert!(segments.len() > 1, "the log fits in one segment");
    for (path, content) in segments {
        let golden = fixture(name).join(path.file_name().unwrap());
        if env::var_os("RECORD").is_some() {
            fs::create_dir_all(fixture(name)).unwrap();
            fs::write(&golden, written(&content)).unwrap();
        }
        let golden = fs::read(&golden).unwrap();
        let differs = golden
            .iter()
            .zip(written(&content))
            .position(|(a, b)| a != b);
        assert_eq!(differs, None, "{} is written differently", path.display());
        assert_eq!(golden.len(), written(&content).len(), "{}", path.display());
    }
}

fn opened(name: &str, segment_bytes: u64) -> (SimFs, Recovered) {
    let log = disk();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        let mut content = fs::read(entry.path()).unwrap();
        content.resize(segment_bytes as usize, 0);
        let file = log.create(&dir().join(entry.file_name())).unwrap();
        file.write_at(&content, 0).unwrap();
        file.sync_data().unwrap();
    }
    log.sync_dir(&dir()).unwrap();
    let (_, recovered) = open(&log).unwrap();
    (log, recovered)
}

#[test]
fn a_log_that_was_written_once_is_read_as_it_was_meant() {
    for (name, segment_bytes, entry_bytes) in [VERSION_1, VERSION_2] {
        let (_, recovered) = opened(name, segment_bytes);

        assert_eq!(State::of(&recovered), write(&disk(), entry_bytes), "{name}");
        assert_eq!(recovered.vote.as_deref(), Some(&b"term 3, node 1"[..]));
        assert_eq!(recovered.truncated_tail_bytes, 0);
    }
}

#[test]
fn a_log_of_version_1_goes_on_in_segments_of_its_own() {
    let (name, segment_bytes, _) = VERSION_1;
    let (log, first) = opened(name, segment_bytes);
    let old = |log: &SimFs| {
        let old = segments_of(log, segment_bytes);
        old.iter()
            .map(|(_, content)| content.clone())
            .collect::<Vec<_>>()
    };
    let before = old(&log);
    assert_eq!(before.len(), 2);
    let (mut subject, again) = Subject::resume(&log).unwrap();
    subject.append(4, vec![b"behind it".to_vec()]);
    subject.flush();
    let expected = subject.state.clone();
    drop(subject);

    assert_eq!(State::of(&again), State::of(&first));
    assert_eq!(old(&log), before, "no byte of the old segments was written");
    log.crash(Crash::LoseAll);
    assert_eq!(State::of(&open(&log).unwrap().1), expected);
}
