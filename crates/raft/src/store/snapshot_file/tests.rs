//! Snapshots as files: written, damaged, received, left behind.

use std::fs;

use ringfence_core::snapshot::{Header, Record};
use ringfence_proto::record::RECORD_VERSION;
use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{FsFile, FsLock, RealFs};

use super::*;
use crate::types::type_config::log_id;

fn dir() -> (tempfile::TempDir, SnapshotDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = SnapshotDir::open(temp.path().join("s"), ClusterId::new([1; 16])).unwrap();
    (temp, dir)
}

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: Some(log_id(2, index)),
        ..SnapshotMeta::default()
    }
}

#[test]
fn a_snapshot_is_read_as_it_was_written_and_replaces_the_older_one() {
    let (_temp, dir) = dir();
    let empty = StateMachine::new().freeze();
    let older = dir.write(&meta(9), &empty).unwrap();
    let newer = dir.write(&meta(10), &empty).unwrap();
    assert!(!older.exists());
    let (path, loaded) = dir.newest().unwrap().unwrap();
    assert_eq!((path, loaded.meta), (newer, meta(10)));
}

#[test]
fn a_flipped_or_missing_byte_anywhere_is_noticed() {
    let (_temp, dir) = dir();
    let path = dir.write(&meta(9), &StateMachine::new().freeze()).unwrap();
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        assert!(dir.load(&path).is_err(), "byte {at} flipped");
        fs::write(&path, &bytes[..at]).unwrap();
        assert!(dir.load(&path).is_err(), "cut at byte {at}");
    }
    fs::write(&path, &bytes).unwrap();
    assert!(dir.load(&path).is_ok());
}

#[test]
fn a_snapshot_of_a_newer_level_asks_for_a_newer_release_and_not_for_an_empty_directory() {
    let (_temp, dir) = dir();
    let empty = StateMachine::new();
    let raised = empty.records().map(|record| match record {
        Record::Header(header) => Record::Header(Header {
            level: RECORD_VERSION + 1,
            ..header
        }),
        other => other,
    });
    let raised = StateMachine::restore(raised.collect::<Vec<_>>()).unwrap();
    let path = dir.write(&meta(9), &raised.freeze()).unwrap();
    let said = match dir.load(&path) {
        Err(newer @ SnapshotError::Newer { .. }) => newer.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a release goes on with a state of a level that it does not know"),
    };
    assert!(said.contains("start a newer release"), "{said}");
    assert!(!said.contains("empty"), "{said}");
}

#[test]
fn what_a_peer_sent_is_checked_before_it_is_installed() {
    let (_temp, dir) = dir();
    let empty = StateMachine::new().freeze();
    let path = dir.write(&meta(9), &empty).unwrap();
    assert!(dir.verify(&path, meta(9).last_log_id).is_ok());
    assert!(dir.verify(&path, meta(10).last_log_id).is_err());
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(dir.verify(&path, meta(9).last_log_id).is_err());
}

#[test]
fn a_snapshot_of_another_cluster_is_refused() {
    let (_temp, dir) = dir();
    let path = dir.write(&meta(9), &StateMachine::new().freeze()).unwrap();
    let other = SnapshotDir {
        cluster: ClusterId::new([2; 16]),
        ..dir
    };
    let refused = other.load(&path).err().unwrap();
    assert!(
        matches!(refused, SnapshotError::OtherCluster { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("; restore "), "{refused}");
}

/// Files of which one is still listed when another task has removed it already, in a directory that
/// cannot be opened to be synced so many times (`EMFILE`).
struct Removed(RealFs, &'static str, AtomicUsize);

impl Fs for Removed {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = self.0.list(dir)?;
        names.push(self.1.to_owned());
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        self.0.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        self.0.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let refused = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        if self.2.fetch_update(order, order, refused).is_ok() {
            return Err(io::Error::from_raw_os_error(24));
        }
        self.0.sync_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_dir(dir)
    }

    fn has_dir(&self, dir: &Path) -> bool {
        self.0.has_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        self.0.lock(path)
    }
}

#[test]
fn neither_an_older_snapshot_that_is_gone_nor_a_moment_without_descriptors_is_a_failure() {
    let (_temp, dir) = dir();
    let gone = Removed(
        RealFs,
        "00000000000000000008-00000000000000000002.snapshot",
        AtomicUsize::new(2),
    );
    let dir = SnapshotDir {
        files: Arc::new(gone),
        ..dir
    };
    let empty = StateMachine::new().freeze();
    let path = dir.write(&meta(9), &empty).unwrap();
    assert!(path.exists());
}

#[test]
fn taking_over_the_present_file_keeps_it() {
    let (_temp, dir) = dir();
    let path = dir.write(&meta(9), &StateMachine::new().freeze()).unwrap();
    assert_eq!(dir.adopt(&path, &meta(9)).unwrap(), path);
    assert!(path.exists());
}

#[test]
fn a_snapshot_in_a_new_directory_survives_a_loss_of_power() {
    let data = Path::new("/data");
    let files = SimFs::with_dir(data);
    let open = || {
        let cluster = ClusterId::new([1; 16]);
        SnapshotDir::open_in(Arc::new(files.clone()), data.join("snapshots"), cluster).unwrap()
    };
    let empty = StateMachine::new().freeze();
    let path = open().write(&meta(9), &empty).unwrap();
    files.crash(Crash::LoseAll);
    let (found, loaded) = open().newest().unwrap().expect("it was durable");
    assert_eq!((found, loaded.meta), (path, meta(9)));
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing_and_the_one_before_it() {
    let data = Path::new("/data");
    let files = SimFs::with_dir(data);
    let cluster = ClusterId::new([1; 16]);
    let dir = SnapshotDir::open_in(Arc::new(files.clone()), data.join("s"), cluster).unwrap();
    let empty = StateMachine::new().freeze();
    let before = dir.write(&meta(9), &empty).unwrap();
    files.set_room(&data.join("s"), Some(0));
    assert!(dir.write(&meta(10), &empty).is_err());
    assert_eq!(files.paths(), std::slice::from_ref(&before));
    files.set_room(&data.join("s"), None);
    let after = dir.write(&meta(10), &empty).unwrap();
    assert_eq!(files.paths(), [after]);
}

#[test]
fn a_transfer_that_breaks_off_leaves_no_file_and_few_are_under_way() {
    let (_temp, dir) = dir();
    let begun: Vec<Incoming> = (0..INCOMING_MAX).filter_map(|_| dir.incoming()).collect();
    assert_eq!(begun.len(), INCOMING_MAX);
    assert!(dir.incoming().is_none(), "one too many");
    for incoming in &begun {
        fs::write(incoming.path(), b"the first part").unwrap();
    }
    let taken = begun[0].path().to_owned();
    dir.adopt(&taken, &meta(9)).unwrap();
    drop(begun);
    let left: Vec<_> = fs::read_dir(&dir.path).unwrap().collect();
    assert_eq!(left.len(), 1, "the snapshot that it became: {left:?}");
    assert!(dir.incoming().is_some());
}
