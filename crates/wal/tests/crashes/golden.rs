//! A log as it was written once: today's code writes the same bytes, and reads them.
//!
//! `RECORD=1 cargo test -p ringfence-wal` writes them anew. A log that was written once is opened
//! for ever, so another byte here means a new version of the format, read beside this one.

use std::path::{Path, PathBuf};
use std::{env, fs};

use ringfence_wal::sim::SimFs;
use ringfence_wal::{EntryId, Fs};

use crate::model::{SEGMENT_BYTES, State, Subject, dir, open};

/// Every kind of record, two terms, and a second segment.
fn write(log: &SimFs) -> State {
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
    subject.append(2, vec![vec![0xaa; 8_500]]);
    subject.flush();
    subject.vote(b"term 3, node 1");
    subject.append(3, vec![vec![0x55; 8_500]]);
    subject.flush();
    assert_eq!(subject.acknowledged(), subject.ops.len());
    subject.state.clone()
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log-v1")
}

/// The content of a segment without the zeros that wait behind it.
fn written(content: &[u8]) -> &[u8] {
    let end = content.iter().rposition(|byte| *byte != 0);
    &content[..end.map_or(0, |last| last + 1)]
}

fn segments(log: &SimFs) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = log.paths().into_iter();
    let segments = paths.filter(|path| path.extension().is_some_and(|end| end == "wal"));
    segments
        .map(|path| {
            let content = log.content(&path).unwrap();
            assert_eq!(content.len() as u64, SEGMENT_BYTES);
            (path, content)
        })
        .collect()
}

#[test]
fn a_log_is_written_as_ever() {
    let log = SimFs::new();
    write(&log);
    let segments = segments(&log);
    assert!(segments.len() > 1, "the log fits in one segment");
    for (path, content) in segments {
        let golden = fixture().join(path.file_name().unwrap());
        if env::var_os("RECORD").is_some() {
            fs::create_dir_all(fixture()).unwrap();
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

#[test]
fn a_log_that_was_written_once_is_read_as_it_was_meant() {
    let log = SimFs::new();
    for entry in fs::read_dir(fixture()).unwrap() {
        let entry = entry.unwrap();
        let mut content = fs::read(entry.path()).unwrap();
        content.resize(SEGMENT_BYTES as usize, 0);
        let file = log.create(&dir().join(entry.file_name())).unwrap();
        file.write_at(&content, 0).unwrap();
        file.sync_data().unwrap();
    }
    log.sync_dir(&dir()).unwrap();

    let (_, recovered) = open(&log).unwrap();

    assert_eq!(State::of(&recovered), write(&SimFs::new()));
    assert_eq!(recovered.vote.as_deref(), Some(&b"term 3, node 1"[..]));
    assert_eq!(recovered.truncated_tail_bytes, 0);
}
