//! The mirror of a node: at work while the node leads, so that one node of a cluster writes.

use std::convert::Infallible;

use ringfence_core::{Event, LeaseName};
use ringfence_kube::{Client, LeaseSnapshot, Metrics, Mirror, Naming, Source};
use ringfence_raft::{Batch, EventFeed, Node, Position};
use tokio::sync::watch;

use crate::leading::{follow, while_leading};

/// Mirrors leases to Kubernetes whenever `node` leads, until it is stopping.
pub(crate) async fn mirror(
    node: Node,
    client: Client,
    naming: Naming,
    metrics: Metrics,
    stopping: watch::Receiver<bool>,
) {
    let mirror = || async {
        // A run remembers what it wrote; what it does not know any more, the next one finds out.
        let source = Local(node.clone());
        let mirror = Mirror::new(source, client.clone(), naming.clone(), metrics.clone());
        let feed = node.events();
        let from = feed.head();
        tokio::select! {
            never = mirror.run() => never,
            never = note_changes(&mirror, feed, from) => never,
        }
    };
    while_leading(&node, stopping, "mirrors", mirror).await;
}

/// Notes every lease in the mirror that this node changes.
async fn note_changes(mirror: &Mirror<Local>, feed: EventFeed, from: Position) -> Infallible {
    let note = |batch: Option<&Batch>| match batch {
        Some(batch) => {
            let changed = batch.events.iter().filter_map(|(_, event)| changed(event));
            changed.for_each(|lease| mirror.note(lease));
        }
        None => mirror.note_all(),
    };
    follow(feed, from, note).await
}

fn changed(event: &Event) -> Option<&LeaseName> {
    match event {
        Event::Granted(granted) => Some(&granted.name),
        Event::Ended { name, .. } | Event::Forgotten { name, .. } => Some(name),
        Event::WaitEnded { .. } | Event::SessionOpened { .. } | Event::SessionEnded { .. } => None,
    }
}

/// What this node has applied.
struct Local(Node);

impl Source for Local {
    fn look(&self, lease: &LeaseName) -> Option<LeaseSnapshot> {
        self.0.read(|machine| ringfence_kube::look(machine, lease))
    }

    fn names(&self, prefix: &str) -> Vec<LeaseName> {
        let state = self.0.frozen();
        state.list(prefix, None).map(|lease| lease.name).collect()
    }

    async fn confirm(&self) -> bool {
        self.0.read_barrier().await.is_ok()
    }
}
