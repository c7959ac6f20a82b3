//! The storage of a seat: its log is opened, and snapshots are taken while it grows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use ringfence_planted::{Bug, planted};
use ringfence_wal::{Fs, OpenError, Options, Recovered, Wal, WalError};
use tokio::sync::Notify;

use super::SeatError;
use crate::identity::Identity;
use crate::inner::{Inner, Running};
use crate::log_store::SnapshotDue;
use crate::place;
use crate::ring::RING_BYTES;
use crate::runtime;
use crate::stop::{StopReason, StopSignal};

/// How long a node waits after a snapshot that could not be taken; twice as long each time.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(1);
/// See [`SNAPSHOT_AGAIN`].
const SNAPSHOT_AGAIN_MAX: Duration = Duration::from_secs(60);
/// Nodes take snapshots at this many different lengths of the log, up to half as much again.
const STAGGER_STEPS: u64 = 8;
/// How long openraft may take to hear of a snapshot that was taken.
const SNAPSHOT_HEARD_MAX: Duration = Duration::from_secs(5);
/// How often a simulated log looks for room that was not there.
const ROOM_AGAIN: Duration = Duration::from_millis(500);

pub(super) async fn open_log(
    inner: &Inner,
    identity: &Identity,
    wal_dir: &Path,
    existing: bool,
) -> Result<(Wal, Recovered), SeatError> {
    let options = Options {
        segment_bytes: inner.config.wal_segment_bytes,
        existing,
        // More than the ring holds would only pass through memory.
        recover_bytes: RING_BYTES as u64,
        on_spare: Box::new(on_spare),
        on_fatal: on_fatal(inner.stop.clone()),
        ..Options::new(identity.file_header())
    };
    let path = wal_dir.to_owned();
    let files = inner.config.hooks.files.clone();
    let open = move || {
        let opened = match place::current() {
            None => Wal::open_in(files, &path, options),
            Some(_) => simulated_log(files, &path, options),
        };
        opened.map_err(|source| match source {
            OpenError::Missing(path) => SeatError::LogMissing { path },
            source => SeatError::Log {
                path: path.clone(),
                source,
            },
        })
    };
    let opened = runtime::blocking(open).await;
    opened.map_err(|error| SeatError::Raft {
        why: error.to_string(),
    })?
}

/// A log whose thread is a task of the place.
fn simulated_log(
    files: Arc<dyn Fs>,
    path: &Path,
    options: Options,
) -> Result<(Wal, Recovered), ringfence_wal::OpenError> {
    let options = Options {
        salt: runtime::random(),
        ..options
    };
    let bell = Arc::new(Notify::new());
    let ring = bell.clone();
    let called = Box::new(move || ring.notify_one());
    let (wal, mut steps, recovered) = Wal::open_stepped(files, path, options, called)?;
    drop(runtime::spawn(async move {
        while steps.goes_on() {
            if steps.is_stalled() {
                tokio::time::sleep(ROOM_AGAIN).await;
            } else {
                bell.notified().await;
            }
            if steps.write() {
                let takes = place::ask(|place| place.disk_time());
                tokio::time::sleep(takes.unwrap_or_default()).await;
                steps.sync();
            }
        }
    }));
    Ok((wal, recovered))
}

/// The log lives on the segments that it has; an operator has to know before they are used up.
fn on_spare(failed: Option<&WalError>) {
    match failed {
        Some(error) => tracing::warn!(
            %error,
            "no segment of the log could be prepared ahead; when the prepared ones are used up, \
             this node takes no more entries until there is room"
        ),
        None => tracing::info!("segments of the log can be prepared ahead again"),
    }
}

/// A failed write is final: the node stops, and whatever was under way is unknown.
fn on_fatal(stop: StopSignal) -> ringfence_wal::OnFatal {
    Box::new(move |error| {
        stop.stop(StopReason::Storage {
            why: error.to_string(),
        });
    })
}

/// The bytes of log after which a node takes a snapshot. Replicas have the same log: without a
/// difference all would write a snapshot at the same time, and run out of room at the same time.
pub(super) fn staggered(bytes: u64, node_id: u64) -> u64 {
    bytes.saturating_add(bytes / STAGGER_STEPS / 2 * (node_id % STAGGER_STEPS))
}

/// Takes a snapshot whenever the log has grown enough. One that cannot be taken is no failure of
/// the node: the log holds everything, and grows until there is room.
pub(super) async fn take_snapshots(inner: Arc<Inner>, running: Arc<Running>) {
    loop {
        let due = running.log.snapshot_due().await;
        let mut pause = SNAPSHOT_AGAIN;
        while !planted(Bug::SnapshotFailureIsFatal)
            && let Err(error) = inner.state.prepare_snapshot().await
        {
            tracing::warn!(
                %error,
                retry_after = ?pause,
                "no snapshot could be taken; the log grows until one can"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SNAPSHOT_AGAIN_MAX);
        }
        if let Err(fatal) = running.raft.trigger().snapshot().await {
            tracing::warn!(%fatal, "no snapshot was taken");
            return;
        }
        if due == SnapshotDue::NoRoom {
            purge_behind_snapshot(&inner, &running).await;
        }
    }
}

/// Drops everything from the log that the newest snapshot covers, also what is kept behind it in
/// better times: a peer that needs it is sent the snapshot.
async fn purge_behind_snapshot(inner: &Inner, running: &Running) {
    let index = inner.state.snapshot_index();
    let mut metrics = running.raft.metrics();
    let heard = tokio::time::timeout(SNAPSHOT_HEARD_MAX, async {
        loop {
            let known = metrics
                .borrow_watched()
                .snapshot
                .as_ref()
                .map(|id| id.index);
            if known >= Some(index) {
                return;
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    });
    if heard.await.is_ok() && running.raft.trigger().purge_log(index).await.is_ok() {
        tracing::info!(
            index,
            "there is no room: the log behind the snapshot is dropped"
        );
    }
}
