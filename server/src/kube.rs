//! The mirror of a node: at work while the node leads, so that one node of a cluster writes.

use std::convert::Infallible;

use ringfence_core::{Event, LeaseName};
use ringfence_kube::{Client, LeaseSnapshot, Metrics, Mirror, Naming, Source};
use ringfence_raft::{EventFeed, Node, Position, Role};
use tokio::sync::watch;
use tracing::info;

/// How many events are taken at once.
const BATCH: usize = 1_000;

/// Mirrors leases to Kubernetes whenever `node` leads, until it is stopping.
pub(crate) async fn mirror(
    node: Node,
    client: Client,
    naming: Naming,
    metrics: Metrics,
    mut stopping: watch::Receiver<bool>,
) {
    let mut status = node.watch_status();
    loop {
        let led = status.wait_for(|status| status.role == Role::Leader && status.serving);
        tokio::select! {
            led = led => if led.is_err() {
                return;
            },
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        // A run remembers what it wrote; what it does not know any more, the next one finds out.
        let source = Local(node.clone());
        let mirror = Mirror::new(source, client.clone(), naming.clone(), metrics.clone());
        let feed = node.events();
        let from = feed.head();
        tokio::select! {
            never = mirror.run() => match never {},
            never = note_changes(&mirror, feed, from) => match never {},
            _ = status.wait_for(|status| status.role != Role::Leader) => {
                info!("no longer the leader: another node mirrors");
            }
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// Tells the mirror of every change that this node applies.
async fn note_changes(mirror: &Mirror<Local>, mut feed: EventFeed, mut at: Position) -> Infallible {
    loop {
        match feed.since(at, BATCH) {
            Ok(batch) => {
                let changed = batch.events.iter().filter_map(|(_, event)| changed(event));
                changed.for_each(|lease| mirror.note(lease));
                at = at.max(batch.upto);
                if batch.events.len() == BATCH {
                    continue;
                }
            }
            Err(_) => {
                at = feed.head();
                mirror.note_all();
                continue;
            }
        }
        feed.changed().await;
    }
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
