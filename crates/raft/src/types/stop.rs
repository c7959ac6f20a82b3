//! Why a node ends on its own.

use ringfence_core::ClusterId;
use tokio::sync::watch;

/// Why a node ended on its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The log holds an entry that this program does not know. The entry was not applied.
    #[error(
        "the log entry at index {index} means nothing to this release ({why}); everything before \
         it is applied and nothing is lost: start a newer release on the same data directory"
    )]
    UnknownEntry {
        /// The log index of the entry; everything before it is applied.
        index: u64,
        /// What the decoder said.
        why: String,
    },
    /// A write to disk failed; nothing can be promised any more.
    #[error("storage failed: {why}")]
    Storage {
        /// The operation that failed, and its error.
        why: String,
    },
    /// The node's log lacks entries that it had acknowledged to the leader.
    #[error(
        "this node acknowledged entry {acknowledged} of term {term}, and its log now ends at \
         {last}: its disk lost what it had reported as written, and with it perhaps a vote, so it \
         stops and does not start again; remove it from the cluster, empty its whole data \
         directory and start it: it joins under a new id; see deploy/RECOVERY.md#one-disk-is-lost"
    )]
    LogReverted {
        /// The term of the acknowledged entry.
        term: u64,
        /// The log index of the entry.
        acknowledged: u64,
        /// The last index that the log has now.
        last: u64,
    },
    /// The node is not a member of its cluster any more.
    #[error(
        "this node was removed from its cluster; empty its directory to let it join as a new node"
    )]
    Removed,
    /// Another process runs with this node's identity, and it is the one that the cluster reaches.
    #[error(
        "another process with this node's identity answers at {address}, where the cluster looks \
         for this node: one of the two data directories is a copy of the other, and two nodes \
         with one identity can lose what was acknowledged; if the original is the one that runs \
         there, empty this data directory and start this node again: it joins under a new id; \
         else stop the other one first"
    )]
    Twin {
        /// The peer address of this node in its cluster.
        address: String,
    },
    /// The node took its seat in a cluster whose log was never begun, and never will be.
    #[error(
        "this node took its seat in cluster {cluster}, which {former} was forming, but {former} \
         has lost its data directory and no first member has a log: nothing was ever written, so \
         nothing is lost; empty this node's data directory and start it again, and do the same on \
         each first member that says this"
    )]
    NeverBegun {
        /// The id of the cluster that never began.
        cluster: ClusterId,
        /// The name of the first member that was to begin the log.
        former: String,
    },
    /// Another cluster goes on in the place of this node's.
    #[error(
        "the node at {address} belongs to a cluster that was restored from this node's cluster \
         {cluster}, so this one is over (SUPERSEDED): what this node holds beyond the backup is lost; \
         keep its data directory if you want to look at it, then empty it and start the node again: \
         it joins the new cluster; see deploy/RECOVERY.md#the-majority-is-lost-for-good"
    )]
    Superseded {
        /// This node's cluster.
        cluster: ClusterId,
        /// The peer address of the node that said so, or where it called from.
        address: String,
    },
    /// Rights are enforced, and this node's peer port admits callers that are no nodes.
    #[error(
        "rights are enforced in this cluster, and this node's peer port is not authenticated: who \
         reaches it would be taken for a node, and past every right; start this node \
         with --cluster-secret-file, or with certificates and --peer-tls-name, and without \
         --peer-tls-mode permissive; or set another mode while a majority of the others runs"
    )]
    OpenPeerPort,
    /// The node was asked to shut down.
    #[error("the node was shut down")]
    ShutDown,
}

/// Carries the first reason to the task that waits for it.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    reason: watch::Sender<Option<StopReason>>,
}

impl StopSignal {
    pub(crate) fn new() -> Self {
        Self {
            reason: watch::Sender::new(None),
        }
    }

    /// Stops the node; only the first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        let is_first = self.reason.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert_with(|| reason.clone());
            is_first
        });
        if is_first && reason != StopReason::ShutDown {
            tracing::error!(%reason, "the node stops");
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Why the node stops, if it does.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.borrow().clone()
    }

    /// Resolves once there is a reason.
    pub(crate) async fn stopped(&self) -> StopReason {
        let mut reason = self.reason.subscribe();
        let stopped = reason.wait_for(Option::is_some).await;
        // The sender lives in `self`, so waiting cannot fail.
        stopped
            .ok()
            .and_then(|reason| reason.clone())
            .unwrap_or(StopReason::ShutDown)
    }
}
