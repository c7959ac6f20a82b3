//! The Pods that sessions are bound to, watched while the node leads.

use ringfence_core::{Command, Event, Pod, PodEnded, PodSeen, PodUid};
use ringfence_kube::Client;
use ringfence_kube::pods::{Bound, Figures, Watcher};
use ringfence_raft::{Batch, Node};
use tokio::sync::watch;
use tracing::warn;

use crate::leading::{follow, while_leading};

/// Watches Pods whenever `node` leads, until it is stopping.
pub(crate) async fn watch(
    node: Node,
    client: Client,
    figures: Figures,
    stopping: watch::Receiver<bool>,
) {
    let watching = || async {
        let feed = node.events();
        let from = feed.head();
        let watcher = Watcher::new(Local(node.clone()), client.clone(), figures.clone());
        // There may be another Pod to look at.
        let note = |batch: Option<&Batch>| {
            if batch.is_none_or(has_opened) {
                watcher.note();
            }
        };
        tokio::select! {
            never = watcher.run() => never,
            never = follow(feed, from, note) => never,
        }
    };
    while_leading(&node, stopping, "watches Pods", watching).await;
}

/// Whether a session was opened.
fn has_opened(batch: &Batch) -> bool {
    let mut events = batch.events.iter();
    events.any(|(_, event)| matches!(event, Event::SessionOpened { .. }))
}

/// What this node has applied, and the log.
struct Local(Node);

impl Bound for Local {
    fn pods(&self) -> Vec<Pod> {
        self.0.frozen().pods().cloned().collect()
    }

    async fn ended(&self, uid: &PodUid, seen: PodSeen) -> bool {
        let uid = uid.clone();
        let ended = Command::PodEnded(PodEnded {
            uid: uid.clone(),
            seen,
        });
        match self.0.propose(ended).await {
            // One entry ends so many sessions; the rest is left for the next.
            Ok(_) => self.0.read(|machine| !machine.has_pod(&uid)),
            Err(error) => {
                warn!(%uid, %error, "the end of a Pod was not logged for certain; it is reported again");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{FencingToken, LeaseName, SessionId};
    use ringfence_raft::Position;

    use super::*;

    #[test]
    fn an_opened_session_is_found_among_other_events() {
        let name = LeaseName::parse("a").unwrap();
        let floor = FencingToken::new(1).unwrap();
        let other = Event::Forgotten { name, floor };
        let opened = Event::SessionOpened {
            session: SessionId::new(1).unwrap(),
        };
        let batch = |events: &[&Event]| Batch {
            events: events
                .iter()
                .map(|event| (Position::default(), (*event).clone()))
                .collect(),
            upto: Position::default(),
        };
        assert!(!has_opened(&batch(&[&other, &other])));
        assert!(has_opened(&batch(&[&other, &opened])));
    }
}
