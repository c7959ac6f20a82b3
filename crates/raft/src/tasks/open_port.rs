//! A member whose peer port is open while rights are enforced.
//!
//! Entries are judged by the principal that a node names, so a caller that is taken for a node has
//! every right. The mode is set only while every member's port is authenticated, and no other node is
//! taken in from then on. What is left is a member that starts again with another configuration.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::Mode;
use ringfence_planted::{Bug, planted};

use crate::shared::inner::Inner;
use crate::types::stop::StopReason;

/// How often a node with an open port looks at the mode.
const MODE_LOOK: Duration = Duration::from_millis(50);

/// Stops this node if its port has to be authenticated and is not.
pub(crate) async fn notice_open_port(inner: Arc<Inner>) {
    if inner.config.peer_authenticated() || planted(Bug::OpenPortServes) {
        return;
    }
    while inner.state.access().mode() != Mode::Enforced {
        tokio::time::sleep(MODE_LOOK).await;
    }
    inner.stop.stop(StopReason::OpenPeerPort);
}
