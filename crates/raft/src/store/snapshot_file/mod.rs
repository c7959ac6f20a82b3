//! Snapshots as files: written beside, verified, renamed, and only then is the previous one gone.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use ringfence_core::{ClusterId, Frozen, StateMachine};
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_wal::Fs;

use crate::platform::files;
use crate::platform::runtime;
use crate::store::snapshot_error::SnapshotError;
use crate::store::snapshot_frames::{Frames, write_frames};
use crate::types::codec;
use crate::types::type_config::{LogId, SnapshotMeta, StoredMembership};

const SUFFIX: &str = "snapshot";
/// Of what is not finished.
const PARTIAL: &str = "partial";
/// The most snapshots that a node receives at the same time. One is of use; a second one may come
/// from a new leader before the transfer of the former one has broken off.
pub(crate) const INCOMING_MAX: usize = 2;

/// Whether a file of this name is a snapshot that is not finished.
pub(crate) fn names_partial(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|its| its == PARTIAL)
}

/// Whether a file of this name is a snapshot: two numbers of 20 digits.
pub(crate) fn names_snapshot(name: &str) -> bool {
    let stem = name
        .strip_suffix(SUFFIX)
        .and_then(|stem| stem.strip_suffix('.'));
    let numbers = stem.and_then(|stem| stem.split_once('-'));
    let is_number = |text: &str| text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(index, term)| is_number(index) && is_number(term))
}

/// A snapshot on disk, as openraft hands it about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
}

/// The directory of a node's snapshots.
#[derive(Clone)]
pub(crate) struct SnapshotDir {
    files: Arc<dyn Fs>,
    path: PathBuf,
    cluster: ClusterId,
    /// How many snapshots are being received.
    incoming: Arc<AtomicUsize>,
}

/// A file that receives a snapshot. It goes with this value unless it has become a snapshot, so a
/// transfer that breaks off leaves nothing behind.
pub(crate) struct Incoming {
    path: PathBuf,
    dir: SnapshotDir,
}

impl Incoming {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !planted(Bug::BrokenTransferLeft) {
            self.dir.remove_leftover(&self.path);
        }
        self.dir.incoming.fetch_sub(1, Ordering::Relaxed);
    }
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
            incoming: Arc::default(),
        };
        let prepare = || -> io::Result<()> {
            files::make_dir_durable(dir.files.as_ref(), &dir.path)?;
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

    /// A place for bytes that come from a peer; `None` while [`INCOMING_MAX`] are under way.
    pub(crate) fn incoming(&self) -> Option<Incoming> {
        let begun = self
            .incoming
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |under_way| {
                (under_way < INCOMING_MAX).then_some(under_way + 1)
            });
        begun.ok()?;
        let id: String = runtime::random_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(Incoming {
            path: self.path.join(format!("incoming-{id}.partial")),
            dir: self.clone(),
        })
    }

    /// Writes a snapshot, reads it back, and only then puts it in the place of older ones.
    pub(crate) fn write(
        &self,
        meta: &SnapshotMeta,
        state: &Frozen,
    ) -> Result<PathBuf, SnapshotError> {
        let partial = self.path.join("building.partial");
        let written = self.write_partial(&partial, meta, state);
        if written.is_err() {
            self.remove_leftover(&partial);
        }
        written?;
        self.adopt(&partial, meta)
    }

    fn write_partial(
        &self,
        partial: &Path,
        meta: &SnapshotMeta,
        state: &Frozen,
    ) -> Result<(), SnapshotError> {
        let files = self.files.as_ref();
        write_frames(files, partial, &self.header(meta), state.records())
            .map_err(|source| SnapshotError::io(partial, source))?;
        self.forget_cached(partial)?;
        let (frames, _) = Frames::open(files, partial)?;
        frames.check()
    }

    /// Lets the next read of a synced file show what the medium holds, as far as the system can be
    /// asked to: it may keep pages that another process reads at the same time.
    fn forget_cached(&self, path: &Path) -> Result<(), SnapshotError> {
        let forget = || self.files.open(path)?.drop_cache();
        forget().map_err(|source| SnapshotError::io(path, source))
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
                    files::patiently(|| self.files.sync_dir(&self.path))?;
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
        self.forget_cached(path)?;
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
        let names = files::patiently(|| self.files.list(&self.path))?;
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
mod tests;
