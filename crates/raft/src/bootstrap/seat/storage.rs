//! Opens the log of a seat.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_wal::{Fs, OpenError, Options, Recovered, Wal, WalError};
use tokio::sync::Notify;

use super::SeatError;
use crate::platform::place;
use crate::platform::runtime;
use crate::shared::inner::Inner;
use crate::store::identity::Identity;
use crate::store::ring::RING_BYTES;
use crate::types::stop::{StopReason, StopSignal};

/// Nodes take snapshots at this many different lengths of the log, up to half as much again.
const STAGGER_STEPS: u64 = 8;
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
