//! What a survivor of a cluster that lost its majority still holds, as a backup.
//!
//! The survivor goes on in a new cluster only, so it must not start again in the old one: others of the
//! old majority may come back, and would go on with it. Its state is loaded first, so that a survivor
//! that cannot be read stays as it was. Then its directory is retired, and only then the backup is
//! written. A crash in between leaves no cluster, and the call is repeated.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_core::{BackupDigest, ClusterId, Entry, Frozen, StateMachine};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::decode_command;
use ringfence_wal::{Fs, FsLock, LogEntry, OpenError, RealFs, read_back};

use crate::store::backup_file::write_backup;
use crate::store::backup_output::BackupOutput;
use crate::store::data_dir::{LOCK_FILE, SNAPSHOT_DIR, WAL_DIR};
use crate::store::identity::{Identity, IdentityError, Seat};
use crate::store::snapshot_error::SnapshotError;
use crate::store::snapshot_file::SnapshotDir;
use crate::types::codec;
use crate::types::type_config::Payload;

/// A backup of what a survivor held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The node's name.
    pub node: String,
    /// Its cluster, which is over.
    pub cluster: ClusterId,
    /// The term of the last entry of its log. Of several survivors the one with the greatest term, and
    /// among those with the greatest index, has all that was acknowledged and is left.
    pub term: u64,
    /// The index of that entry.
    pub index: u64,
    /// The digest of the backup.
    pub digest: BackupDigest,
}

/// Why a survivor is not recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The backup cannot be written.
    #[error("backup {path}")]
    Output {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("data directory {path}")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A process uses the data directory.
    #[error("data directory {path} is in use by another process; stop the node first")]
    Running {
        /// The directory.
        path: PathBuf,
    },
    /// No member of a cluster has lived in the directory.
    #[error(
        "{path} holds no member of a cluster, so there is nothing to recover; nothing was changed"
    )]
    NoMember {
        /// The directory.
        path: PathBuf,
    },
    /// The node belongs to another cluster than was said.
    #[error(
        "the node in {path} belongs to cluster {found}, got --accept-loss {offered}; nothing was \
         changed: name the cluster whose loss you accept"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// What was said.
        offered: ClusterId,
        /// The node's cluster.
        found: ClusterId,
    },
    /// The identity file.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The node lost entries that it had acknowledged.
    #[error(
        "the node in {path} lost entries of its log that it had acknowledged, up to entry {acknowledged} \
         of term {term}, so what is left there is older than its term and index say; it was not \
         retired: recover another survivor, or restore from a backup"
    )]
    Forgot {
        /// The directory.
        path: PathBuf,
        /// The term of the last entry that it lost.
        term: u64,
        /// Its index.
        acknowledged: u64,
    },
    /// The log cannot be read back.
    #[error(
        "the log of this survivor, which was not retired; recover another survivor, or restore from a \
         backup"
    )]
    Log(#[from] OpenError),
    /// The newest snapshot cannot be read back.
    #[error(
        "the snapshot of this survivor, which was not retired; recover another survivor, or restore \
         from a backup"
    )]
    Snapshot(#[from] SnapshotError),
    /// The log begins behind the newest snapshot.
    #[error(
        "the log of this survivor begins at entry {first}, but its newest snapshot ends at {snapshot}, so \
         what it acknowledged in between is gone; it was not retired: recover another survivor, or \
         restore from a backup"
    )]
    Gap {
        /// The first entry of the log.
        first: u64,
        /// Where the snapshot ends, 0 if there is none.
        snapshot: u64,
    },
    /// An entry means nothing to this release.
    #[error(
        "entry {index} of this survivor's log cannot be read ({why}); it was not retired: run the \
         release that wrote it"
    )]
    Entry {
        /// Its index.
        index: u64,
        /// What the decoder said.
        why: String,
    },
    /// The log does not hold the whole forming of the cluster.
    #[error(
        "the log of this survivor ends at entry {index} of term {term}, before the cluster was formed \
         completely, so it holds nothing to go on with; it was not retired. It may only have lagged: \
         recover another survivor, or restore from a backup. If no member holds more, nothing was ever \
         granted in this cluster: form or restore it again on empty directories"
    )]
    NotFormed {
        /// The term of the last entry of its log, 0 if the log is empty.
        term: u64,
        /// The index of that entry.
        index: u64,
    },
}

/// Makes a backup of all that a stopped node holds, entries that were never committed included, and
/// retires its directory: the node never starts again. `accept_loss` names the node's cluster: what
/// only other members hold is lost. May be repeated if it failed.
///
/// # Errors
/// [`RecoverError`] says what is wrong and whether anything was changed.
pub fn recover(
    data_dir: &Path,
    accept_loss: ClusterId,
    out: &Path,
) -> Result<Recovered, RecoverError> {
    let failed = |source| RecoverError::Output {
        path: out.to_owned(),
        source,
    };
    // First, so that a file that cannot be written leaves the node as it is.
    let mut output = BackupOutput::create(out, false).map_err(failed)?;
    let survivor = Survivor::find(Arc::new(RealFs), data_dir, accept_loss)?;
    // No other run recovers this node meanwhile.
    output.remove_leftovers().map_err(failed)?;
    let (term, index, state) = survivor.load()?;
    survivor.retire()?;
    write_backup(&state, &mut output).map_err(failed)?;
    let digest = output.finish().map_err(failed)?;
    Ok(Recovered {
        node: survivor.identity.name,
        cluster: accept_loss,
        term,
        index,
        digest,
    })
}

/// The state of a stopped node in any files, for [`crate::write_backup`]; otherwise as [`recover`]. The
/// node never starts again.
///
/// # Errors
/// See [`recover`].
pub fn recovered_state(
    files: Arc<dyn Fs>,
    data_dir: &Path,
    accept_loss: ClusterId,
) -> Result<Frozen, RecoverError> {
    let survivor = Survivor::find(files, data_dir, accept_loss)?;
    let (_, _, state) = survivor.load()?;
    survivor.retire()?;
    Ok(state)
}

/// The directory of a stopped member, which no process can use meanwhile.
struct Survivor {
    files: Arc<dyn Fs>,
    data_dir: PathBuf,
    identity: Identity,
    seat: Seat,
    _lock: FsLock,
}

impl Survivor {
    fn find(
        files: Arc<dyn Fs>,
        data_dir: &Path,
        accept_loss: ClusterId,
    ) -> Result<Self, RecoverError> {
        let path = || data_dir.to_owned();
        if !files.has_dir(data_dir) {
            return Err(RecoverError::NoMember { path: path() });
        }
        let lock = files.lock(&data_dir.join(LOCK_FILE));
        let lock = lock.map_err(|source| RecoverError::DataDir {
            path: path(),
            source,
        })?;
        if matches!(lock, FsLock::Busy(_)) {
            return Err(RecoverError::Running { path: path() });
        }
        let identity = Identity::load(files.as_ref(), data_dir)?;
        let found = identity.and_then(|identity| Some((identity.seat?, identity)));
        let Some((seat, identity)) = found else {
            return Err(RecoverError::NoMember { path: path() });
        };
        if seat.cluster != accept_loss {
            return Err(RecoverError::OtherCluster {
                path: path(),
                offered: accept_loss,
                found: seat.cluster,
            });
        }
        if let Some((term, acknowledged)) = identity.forgot {
            return Err(RecoverError::Forgot {
                path: path(),
                term,
                acknowledged,
            });
        }
        Ok(Self {
            files,
            data_dir: path(),
            identity,
            seat,
            _lock: lock,
        })
    }

    /// Sees to it, durably, that no node starts on the directory again.
    fn retire(&self) -> Result<(), RecoverError> {
        if planted(Bug::RecoverLeavesTheNode) {
            return Ok(());
        }
        let retired = Identity {
            retired: true,
            ..self.identity.clone()
        };
        Ok(retired.save(self.files.as_ref(), &self.data_dir)?)
    }

    /// The term and the index of the last entry, and the state behind it.
    fn load(&self) -> Result<(u64, u64, Frozen), RecoverError> {
        let snapshots = self.data_dir.join(SNAPSHOT_DIR);
        let dir = SnapshotDir::open_in(self.files.clone(), snapshots, self.seat.cluster)?;
        let (mut machine, mut last) = match dir.newest()? {
            None => (StateMachine::new(), (0, 0)),
            Some((_, loaded)) => {
                let last = loaded.meta.last_log_id;
                let last = last.map_or((0, 0), |id| (id.leader_id.term, id.index));
                (loaded.machine, last)
            }
        };
        let wal = self.data_dir.join(WAL_DIR);
        let log = read_back(self.files.as_ref(), &wal, &self.identity.file_header())?;
        let snapshot = last.1;
        let behind = log.entries.into_iter();
        for logged in behind.filter(|entry| entry.id.index > snapshot) {
            if logged.id.index != last.1 + 1 {
                return Err(RecoverError::Gap {
                    first: logged.id.index,
                    snapshot,
                });
            }
            last = (logged.id.term, logged.id.index);
            apply(&mut machine, logged)?;
        }
        if !machine.is_formed() {
            let (term, index) = last;
            return Err(RecoverError::NotFormed { term, index });
        }
        Ok((last.0, last.1, machine.freeze()))
    }
}

fn apply(machine: &mut StateMachine, logged: LogEntry) -> Result<(), RecoverError> {
    let (index, term) = (logged.id.index, logged.id.term);
    let wrong = |why: String| RecoverError::Entry { index, why };
    let payload = codec::payload_from_bytes(logged.payload);
    match payload.map_err(|why| wrong(why.to_string()))? {
        Payload::Blank | Payload::Membership(_) => machine.skip(index),
        Payload::Normal(proposal) => {
            let command = decode_command(&proposal.command());
            let entry = Entry {
                index,
                term,
                time: proposal.time(),
                wall: proposal.wall(),
                command: command.map_err(|why| wrong(why.to_string()))?,
            };
            // Who watched is gone with the cluster.
            machine.apply(&entry, &mut Vec::new());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
