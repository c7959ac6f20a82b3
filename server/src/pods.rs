//! The Pods that sessions are bound to, watched while the node leads.

use std::convert::Infallible;

use ringfence_core::{Command, Event, Pod, PodEnded, PodSeen, PodUid};
use ringfence_kube::Client;
use ringfence_kube::pods::{Bound, Figures, Watcher};
use ringfence_raft::{EventFeed, Node, Role};
use tokio::sync::watch;
use tracing::{info, warn};

/// How many events are taken at once.
const BATCH: usize = 1_000;

/// Watches Pods whenever `node` leads, until it is stopping.
pub(crate) async fn watch(
    node: Node,
    client: Client,
    figures: Figures,
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
        let feed = node.events();
        let watcher = Watcher::new(Local(node.clone()), client.clone(), figures.clone());
        tokio::select! {
            never = watcher.run() => match never {},
            never = note_sessions(&watcher, feed) => match never {},
            _ = status.wait_for(|status| status.role != Role::Leader) => {
                info!("no longer the leader: another node watches Pods");
            }
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// Tells the watcher when there may be another Pod to look at.
async fn note_sessions(watcher: &Watcher<Local>, mut feed: EventFeed) -> Infallible {
    let mut at = feed.head();
    loop {
        let opened = match feed.since(at, BATCH) {
            Ok(batch) => {
                at = at.max(batch.upto);
                let events = batch.events.iter();
                let mut kinds = events.map(|(_, event)| event);
                kinds.any(|event| matches!(event, Event::SessionOpened { .. }))
            }
            Err(_) => {
                at = feed.head();
                true
            }
        };
        if opened {
            watcher.note();
        } else {
            feed.changed().await;
        }
    }
}

/// What this node has applied, and the log.
struct Local(Node);

impl Bound for Local {
    fn pods(&self) -> Vec<Pod> {
        self.0.read(|machine| machine.pods().cloned().collect())
    }

    async fn ended(&self, uid: &PodUid, seen: PodSeen) -> bool {
        let uid = uid.clone();
        let ended = Command::PodEnded(PodEnded {
            uid: uid.clone(),
            seen,
        });
        match self.0.propose(ended).await {
            // One entry ends so many sessions; the rest is left for the next.
            Ok(_) => self
                .0
                .read(|machine| machine.pods().all(|pod| *pod.uid() != uid)),
            Err(error) => {
                warn!(%uid, %error, "the end of a Pod was not logged for certain; it is told again");
                false
            }
        }
    }
}
