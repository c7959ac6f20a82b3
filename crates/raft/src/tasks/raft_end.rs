//! The end of Raft, which ends its node.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use crate::shared::inner::{Inner, Running};
use crate::types::stop::StopReason;

/// The least time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Stops the node when Raft has stopped for good.
pub(crate) async fn watch_raft(inner: Arc<Inner>, running: Arc<Running>) {
    let mut metrics = running.raft.metrics();
    loop {
        let state = metrics.borrow_watched().running_state.clone();
        if let Err(fatal) = state {
            inner.stop.stop(StopReason::Storage {
                why: fatal.to_string(),
            });
            return;
        }
        tokio::time::sleep(LOOK).await;
        if metrics.changed().await.is_err() {
            inner.stop.stop(StopReason::Storage {
                why: "Raft has ended".to_owned(),
            });
            return;
        }
    }
}
