//! Snapshots are taken while the log grows.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use ringfence_planted::{Bug, planted};

use crate::shared::inner::{Inner, Running};
use crate::store::log_store::SnapshotDue;

/// How long a node waits after a snapshot that could not be taken; twice as long each time.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(1);
/// See [`SNAPSHOT_AGAIN`].
const SNAPSHOT_AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long openraft may take to hear of a snapshot that was taken.
const SNAPSHOT_HEARD_MAX: Duration = Duration::from_secs(5);

/// Takes a snapshot whenever the log has grown enough. One that cannot be taken is no failure of
/// the node: the log holds everything, and grows until there is room.
pub(crate) async fn take_snapshots(inner: Arc<Inner>, running: Arc<Running>) {
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
        // The file is complete before openraft asks for it: a failure of this disk then never reaches
        // openraft, which would take it for the end of the node.
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
