//! Snapshots as files: written beside, verified, renamed, and only then is the previous one gone.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ringfence_core::{ClusterId, Frozen, StateMachine};
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_wal::Fs;

use crate::codec;
use crate::files;
use crate::snapshot_frames::{Frames, write_frames};
use crate::type_config::{LogId, SnapshotMeta, StoredMembership};

const SUFFIX: &str = "snapshot";
/// Of what is not finished.
const PARTIAL: &str = "partial";

/// A snapshot on disk, as openraft hands it about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
}

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("snapshot {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Its bytes are damaged.
    #[error(
        "snapshot {path} is damaged at byte {offset} ({why}); restore the file, or empty the whole \
         directory and let the node join anew"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged frame begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It belongs to another cluster.
    #[error(
        "snapshot {path} belongs to cluster {found}, not to {expected}; restore the file, or empty \
         the whole directory and let the node join anew"
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The cluster of this node.
        expected: ClusterId,
        /// The cluster in the file.
        found: String,
    },
}

impl SnapshotError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// The directory of a node's snapshots.
#[derive(Clone)]
pub(crate) struct SnapshotDir {
    files: Arc<dyn Fs>,
    path: PathBuf,
    cluster: ClusterId,
}

impl fmt::Debug for SnapshotDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshots in {}", self.path.display())
    }
}

/// A snapshot read back.
pub(crate) struct Loaded {
    pub(crate) meta: SnapshotMeta,
    pub(crate) machine: StateMachine,
}

impl SnapshotDir {
    /// Opens the directory, makes it if needed, and clears away what a crash left half written.
    pub(crate) fn open_in(
        files: Arc<dyn Fs>,
        path: PathBuf,
        cluster: ClusterId,
    ) -> Result<Self, SnapshotError> {
        let dir = Self {
            files,
            path,
            cluster,
        };
        let prepare = || -> io::Result<()> {
            dir.files.make_dir(&dir.path)?;
            for path in dir.with_suffix(PARTIAL)? {
                dir.files.remove(&path)?;
            }
            Ok(())
        };
        prepare().map_err(|source| SnapshotError::io(&dir.path, source))?;
        Ok(dir)
    }

    /// The same among the operating system's files; for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn open(path: PathBuf, cluster: ClusterId) -> Result<Self, SnapshotError> {
        Self::open_in(Arc::new(ringfence_wal::RealFs), path, cluster)
    }

    /// The newest snapshot, read and verified; `None` if there is none.
    pub(crate) fn newest(&self) -> Result<Option<(PathBuf, Loaded)>, SnapshotError> {
        let mut names = self.finished()?;
        names.sort();
        let Some(newest) = names.pop() else {
            return Ok(None);
        };
        let loaded = self.load(&newest)?;
        Ok(Some((newest, loaded)))
    }

    /// A path for bytes that come from a peer.
    pub(crate) fn incoming(&self) -> PathBuf {
        let id: String = crate::identity::random_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.path.join(format!("incoming-{id}.partial"))
    }

    /// Writes a snapshot, reads it back, and only then puts it in the place of older ones.
    pub(crate) fn write(
        &self,
        meta: &SnapshotMeta,
        state: &Frozen,
    ) -> Result<PathBuf, SnapshotError> {
        let partial = self.path.join("building.partial");
        let files = self.files.as_ref();
        write_frames(files, &partial, &self.header(meta), state.records())
            .map_err(|source| SnapshotError::io(&partial, source))?;
        let (frames, _) = Frames::open(files, &partial)?;
        frames.check()?;
        self.adopt(&partial, meta)
    }

    /// Makes a verified file the newest snapshot and removes the older ones. A file that already
    /// is the newest snapshot stays where it is.
    pub(crate) fn adopt(&self, from: &Path, meta: &SnapshotMeta) -> Result<PathBuf, SnapshotError> {
        let (term, index) = meta
            .last_log_id
            .map_or((0, 0), |id| (id.leader_id.term, id.index));
        let target = self.path.join(format!("{index:020}-{term:020}.{SUFFIX}"));
        let adopt = || -> io::Result<()> {
            if from != target {
                self.files.rename(from, &target)?;
                if !planted(Bug::SnapshotNameNotSynced) {
                    self.files.sync_dir(&self.path)?;
                }
            }
            Ok(())
        };
        adopt().map_err(|source| SnapshotError::io(&target, source))?;
        for older in self.finished()? {
            if older < target {
                // What is built and what is installed may come to this at the same time, and then
                // each finds files here that the other one removes.
                let removed = files::remove_if_there(self.files.as_ref(), &older);
                removed.map_err(|source| SnapshotError::io(&older, source))?;
            }
        }
        Ok(target)
    }

    /// Checks a file that came from a peer: openraft takes a failed installation for a failure of
    /// this node's own disk.
    pub(crate) fn verify(&self, path: &Path, last: Option<LogId>) -> Result<(), SnapshotError> {
        let (frames, header) = Frames::open(self.files.as_ref(), path)?;
        let meta = self.meta(&frames, path, header)?;
        if meta.last_log_id != last {
            return Err(frames.damaged("it is another one than was offered"));
        }
        frames.check()
    }

    /// Reads a snapshot and rebuilds its state, record by record.
    pub(crate) fn load(&self, path: &Path) -> Result<Loaded, SnapshotError> {
        let (frames, header) = Frames::open(self.files.as_ref(), path)?;
        let meta = self.meta(&frames, path, header)?;
        let mut records = frames.records();
        let restored = StateMachine::restore(records.by_ref());
        let restored = restored.map_err(|bad| records.damaged(bad));
        // A file that could not be read to its end explains records that make no state.
        records.finish()?;
        Ok(Loaded {
            meta,
            machine: restored?,
        })
    }

    fn finished(&self) -> Result<Vec<PathBuf>, SnapshotError> {
        let found = self.with_suffix(SUFFIX);
        found.map_err(|source| SnapshotError::io(&self.path, source))
    }

    fn with_suffix(&self, suffix: &str) -> io::Result<Vec<PathBuf>> {
        let names = self.files.list(&self.path)?;
        let paths = names.into_iter().map(|name| self.path.join(name));
        Ok(paths
            .filter(|path| path.extension().is_some_and(|its| its == suffix))
            .collect())
    }

    /// Where the files are.
    pub(crate) fn files(&self) -> &Arc<dyn Fs> {
        &self.files
    }

    /// Removes what did not become a snapshot; installing one takes the file away.
    pub(crate) fn remove_leftover(&self, path: &Path) {
        if let Err(error) = files::remove_if_there(self.files.as_ref(), path) {
            tracing::warn!(%error, path = %path.display(), "a leftover stays");
        }
    }

    fn header(&self, meta: &SnapshotMeta) -> pb::SnapshotHeader {
        pb::SnapshotHeader {
            cluster: Bytes::copy_from_slice(self.cluster.as_bytes()),
            last: meta.last_log_id.map(codec::log_id_to_pb),
            membership_at: meta.last_membership.log_id().map(codec::log_id_to_pb),
            membership: Some(codec::membership_to_pb(meta.last_membership.membership())),
        }
    }

    fn meta(
        &self,
        frames: &Frames<'_>,
        path: &Path,
        header: pb::SnapshotHeader,
    ) -> Result<SnapshotMeta, SnapshotError> {
        if header.cluster[..] != self.cluster.as_bytes()[..] {
            return Err(SnapshotError::OtherCluster {
                path: path.to_owned(),
                expected: self.cluster,
                found: ClusterId::from_slice(&header.cluster)
                    .map_or_else(|| "no cluster".to_owned(), |cluster| cluster.to_string()),
            });
        }
        let membership = codec::membership_from_pb(header.membership.unwrap_or_default())
            .map_err(|error| frames.damaged(error))?;
        let at = header.membership_at.map(codec::log_id_from_pb);
        Ok(SnapshotMeta {
            last_log_id: header.last.map(codec::log_id_from_pb),
            last_membership: StoredMembership::new(at, membership),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringfence_wal::{FsFile, FsLock, RealFs};

    use super::*;
    use crate::type_config::log_id;

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

    /// Files of which one is still listed when somebody else has removed it already.
    struct Removed(RealFs, &'static str);

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
    fn an_older_snapshot_that_another_writer_removed_first_is_no_failure() {
        let (_temp, dir) = dir();
        let gone = Removed(RealFs, "00000000000000000008-00000000000000000002.snapshot");
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
}
