//! Taking a seat in a cluster: the identity is fixed, the log opened, and Raft begins.

mod storage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::errors::{InitializeError, RaftError};
use ringfence_core::{BackupDigest, ClusterId, Form, Secret};
use ringfence_wal::{Recovered, Wal};

use self::storage::{open_log, staggered};
use crate::bootstrap::beginning::await_beginning;
use crate::leader::task::LeadershipTask;
use crate::leader::task::forming::Forming;
use crate::leader::term::log_uncommitted_max;
use crate::network::{Caller, PeerNetwork, Transport};
use crate::platform::clock;
use crate::platform::runtime;
use crate::shared::inner::{Inner, Running};
use crate::store::data_dir::{SNAPSHOT_DIR, WAL_DIR};
use crate::store::identity::{Identity, IdentityError, Seat};
use crate::store::log_store::LogStore;
use crate::store::snapshot_error::SnapshotError;
use crate::store::snapshot_file::SnapshotDir;
use crate::store::state::Raft;
use crate::store::state::StateStore;
use crate::tasks::history::fill_gaps;
use crate::tasks::open_port::notice_open_port;
use crate::tasks::raft_end::watch_raft;
use crate::tasks::removal::notice_removal;
use crate::tasks::seek::seek_vote;
use crate::tasks::snapshots::take_snapshots;
use crate::tasks::superseded::notice_superseded;
use crate::tasks::twin::notice_twin;
use crate::types::stop::StopReason;
use crate::types::type_config::Peer;

/// Why a node cannot take its seat.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    /// The identity file.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log.
    #[error("open the log in {path}")]
    Log {
        /// Its directory.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: ringfence_wal::OpenError,
    },
    /// The log is gone although the node belongs to a cluster.
    #[error(
        "the log in {path} is missing or empty, but this node is a member of its cluster and has \
         promised what the log held, so it does not start without it; put the files back if they \
         were moved, else remove this member from the cluster, empty the whole data directory and \
         start the node again: it joins under a new id; see \
         deploy/RECOVERY.md#one-disk-is-lost"
    )]
    LogMissing {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The log begins behind the newest snapshot: the state in between is gone.
    #[error(
        "the log in {path} begins behind entry {purged}, but the newest snapshot ends at entry \
         {snapshot}, so what this node has acknowledged in between is lost and it does not start; \
         put the snapshot back if it was moved, else remove this member from the cluster, empty \
         the whole data directory and start the node again: it joins under a new id; see \
         deploy/RECOVERY.md#one-disk-is-lost"
    )]
    SnapshotMissing {
        /// The directory of the log.
        path: PathBuf,
        /// The greatest index that is no longer in the log.
        purged: u64,
        /// Where the newest snapshot ends, 0 if there is none.
        snapshot: u64,
    },
    /// This node forgot what it had acknowledged; see [`StopReason::LogReverted`].
    #[error(
        "this node lost entries of its log that it had acknowledged (entry {acknowledged} of term \
         {term}), so nothing that it promised holds and it does not start; remove this member from \
         the cluster, empty the whole data directory and start the node again: it joins under a \
         new id, see deploy/RECOVERY.md#one-disk-is-lost; look at its disk, which lost what it had \
         reported as written"
    )]
    Forgot {
        /// The term of the entry.
        term: u64,
        /// Its index.
        acknowledged: u64,
    },
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// An entry of the log cannot be read.
    #[error(
        "the log in {path} cannot be understood: {why}; start the version that wrote it, or empty \
         the whole directory and let the node join again"
    )]
    Entry {
        /// Its directory.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A directory cannot be made or cleared.
    #[error("prepare {path}")]
    Prepare {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The node has a seat.
    #[error("this node is node {node_id} of cluster {cluster} already; start it again to go on")]
    Taken {
        /// The cluster.
        cluster: ClusterId,
        /// Its id there.
        node_id: u64,
    },
    /// The node stopped while it took up its log.
    #[error(transparent)]
    Stopped(StopReason),
    /// Raft did not start.
    #[error("start Raft: {why}")]
    Raft {
        /// What it said.
        why: String,
    },
}

/// Takes a seat for the first time. `first_members` is given to the one node that forms the
/// cluster, `restores` to all first members of one that begins with a backup or a quiet
/// time.
pub(crate) async fn take_seat(
    inner: &Arc<Inner>,
    seat: Seat,
    first_members: Vec<(u64, Peer)>,
    restores: Option<BackupDigest>,
) -> Result<(), SeatError> {
    let _once = inner.seating.lock().await;
    if let Some(taken) = inner.identity.lock().seat {
        // A seat is taken once. One that did not get as far as running has made promises all the
        // same: its log is not to be cleared away, and the next start goes on with it.
        return if taken == seat && inner.running.get().is_some() {
            Ok(())
        } else {
            Err(SeatError::Taken {
                cluster: taken.cluster,
                node_id: taken.node_id,
            })
        };
    }
    let identity = Identity {
        seat: Some(seat),
        first_members,
        restores,
        ..inner.identity.lock().clone()
    };
    let data_dir = &inner.config.data_dir;
    let wal_dir = data_dir.join(WAL_DIR);
    // Nothing was promised yet: what lies here is from an attempt that did not get this far.
    prepare(&wal_dir, || {
        inner.files().remove_dir(&wal_dir)?;
        inner.files().make_dir(&wal_dir)?;
        inner.files().sync_dir(data_dir)
    })?;
    // The log is made before the identity names it. A crash in between leaves a log without a seat,
    // which the next attempt clears; the reverse would look like a member that lost its log.
    let opened = open_log(inner, &identity, &wal_dir, false).await?;
    // From here on the node is a member, and its log must be there at every start.
    identity.save(inner.files(), data_dir)?;
    *inner.identity.lock() = identity;
    run(inner, seat, opened).await
}

/// Goes on in the seat that the identity file names.
pub(crate) async fn resume(inner: &Arc<Inner>, seat: Seat) -> Result<(), SeatError> {
    let _once = inner.seating.lock().await;
    let identity = inner.identity.lock().clone();
    let wal_dir = inner.config.data_dir.join(WAL_DIR);
    if let Some((term, acknowledged)) = identity.forgot {
        return Err(SeatError::Forgot { term, acknowledged });
    }
    if !inner.files().has_dir(&wal_dir) {
        return Err(SeatError::LogMissing { path: wal_dir });
    }
    let opened = open_log(inner, &identity, &wal_dir, true).await?;
    run(inner, seat, opened).await
}

fn prepare(path: &Path, work: impl FnOnce() -> std::io::Result<()>) -> Result<(), SeatError> {
    work().map_err(|source| SeatError::Prepare {
        path: path.to_owned(),
        source,
    })
}

/// Opens what hangs on the log, and begins.
async fn run(
    inner: &Arc<Inner>,
    seat: Seat,
    (wal, recovered): (Wal, Recovered),
) -> Result<(), SeatError> {
    let config = &inner.config;
    let wal_dir = config.data_dir.join(WAL_DIR);
    let purged = recovered.purged.map_or(0, |purged| purged.index);
    let snapshot_bytes = staggered(config.snapshot_log_bytes, seat.node_id);
    let log = LogStore::new(wal, recovered, snapshot_bytes).map_err(|error| SeatError::Entry {
        path: wal_dir.clone(),
        why: error.to_string(),
    })?;
    let snapshot_dir = config.data_dir.join(SNAPSHOT_DIR);
    let files = config.hooks.files.clone();
    let load = move || {
        let dir = SnapshotDir::open_in(files, snapshot_dir, seat.cluster)?;
        let newest = dir.newest()?;
        Ok::<_, SnapshotError>((dir, newest))
    };
    let loaded = runtime::blocking(load).await;
    let (dir, newest) = loaded.map_err(|error| SeatError::Raft {
        why: error.to_string(),
    })??;
    let newest_at = newest
        .as_ref()
        .and_then(|(_, loaded)| loaded.meta.last_log_id);
    let snapshot = newest_at.map_or(0, |last| last.index);
    if snapshot < purged {
        return Err(SeatError::SnapshotMissing {
            path: wal_dir,
            purged,
            snapshot,
        });
    }
    inner.state.open(dir, newest);

    let caller = Caller {
        seat,
        incarnation: inner.incarnation,
    };
    let connector = config.peer_tls.as_ref().map(|tls| tls.connect.clone());
    let files = config.hooks.files.clone();
    let transport = Arc::new(Transport::new(caller, files, connector));
    let raft_error = |error: &dyn std::fmt::Display| SeatError::Raft {
        why: error.to_string(),
    };
    let openraft = Arc::new(config.openraft().map_err(|error| raft_error(&error))?);
    let network = PeerNetwork(transport.clone());
    let store = StateStore::new(inner.state.clone());
    let raft = Raft::new(seat.node_id, openraft, network, log.clone(), store);
    // What stopped the node says more than what Raft made of it.
    let raft = raft.await.map_err(|fatal| {
        let stopped = inner.stop.reason().map(SeatError::Stopped);
        stopped.unwrap_or_else(|| raft_error(&fatal))
    })?;
    inner.state.started();
    begin_log(inner, &raft, &log).await?;

    let running = Arc::new(Running {
        caller,
        raft,
        log,
        transport,
    });
    let leadership = LeadershipTask {
        node_id: seat.node_id,
        raft: running.raft.clone(),
        state: inner.state.clone(),
        log: running.log.clone(),
        log_unflushed_max: config.log_unflushed_max,
        log_uncommitted_max: log_uncommitted_max(config.wal_segment_bytes),
        flush_lag_max: config.flush_lag_max,
        pod_sessions: config.pod_sessions,
        peer_authenticated: config.peer_authenticated(),
        live_within: config.timing.live_within(),
        wall_millis: config.hooks.wall_millis,
        seated: clock::since_boot(),
        transport: running.transport.clone(),
        route: inner.route.clone(),
        observer: config.hooks.observer.clone(),
        forming: forming(inner, seat.cluster),
        beginning_agreed: inner.identity.lock().restores.is_some(),
        counts: inner.lead_counts.clone(),
    };
    // Before the tasks start, which count from here for how long no leader was heard.
    inner.takes_seat();
    drop(inner.running.set(running.clone()));
    tracing::info!(cluster = %seat.cluster, node_id = seat.node_id, "this node has its seat");
    inner.tasks.spawn(leadership.run());
    inner.tasks.spawn(fill_gaps(inner.clone(), running.clone()));
    inner
        .tasks
        .spawn(take_snapshots(inner.clone(), running.clone()));
    inner
        .tasks
        .spawn(watch_raft(inner.clone(), running.clone()));
    inner
        .tasks
        .spawn(notice_removal(inner.clone(), running.clone()));
    inner.tasks.spawn(notice_open_port(inner.clone()));
    inner
        .tasks
        .spawn(notice_superseded(inner.clone(), running.clone()));
    if !inner.process.is_empty() {
        inner
            .tasks
            .spawn(notice_twin(inner.clone(), running.clone()));
    }
    if !running.log.has_begun() {
        inner
            .tasks
            .spawn(await_beginning(inner.clone(), running.clone()));
    }
    inner.tasks.spawn(seek_vote(inner.clone(), running));
    Ok(())
}

/// What the cluster of this node's seat is formed with. The identity knows whether it begins with a
/// backup or a quiet time: a flag that was added or left out since means nothing for this seat.
fn forming(inner: &Inner, cluster: ClusterId) -> Forming {
    let config = &inner.config;
    let without_a_past = Form {
        cluster,
        token_floor: config.token_floor,
        settings: config.settings,
        mode: config.mode,
        quiet_time: config.quiet_time,
        restored: None,
    };
    let Some(restores) = inner.identity.lock().restores else {
        return Forming::Anew(without_a_past);
    };
    if inner.started_to_begin_with() != Some(restores) {
        return Forming::Lacks(restores);
    }
    match &config.restore {
        Some(restore) => Forming::Restoring {
            restore: restore.clone(),
            form: restore.form(cluster, config.token_floor, config.quiet_time),
            seeds: restore.seeds(restores, Secret::new(runtime::random_bytes())),
        },
        None => Forming::Anew(without_a_past),
    }
}

/// The founder begins the log, once: every first member has its seat by now. The identity drops the
/// list of members only after that, so a founder that crashes in between tries again.
async fn begin_log(inner: &Inner, raft: &Raft, log: &LogStore) -> Result<(), SeatError> {
    let members = inner.identity.lock().first_members.clone();
    if members.is_empty() {
        return Ok(());
    }
    if log.is_blank() {
        let members = members.into_iter().map(|(id, peer)| (id, Arc::new(peer)));
        let members: BTreeMap<u64, Arc<Peer>> = members.collect();
        match raft.initialize(members).await {
            // It may have begun, and its first append or vote come from elsewhere meanwhile.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => {
                return Err(SeatError::Raft {
                    why: error.to_string(),
                });
            }
        }
    }
    let begun = Identity {
        first_members: Vec::new(),
        ..inner.identity.lock().clone()
    };
    begun.save(inner.files(), &inner.config.data_dir)?;
    *inner.identity.lock() = begun;
    Ok(())
}
