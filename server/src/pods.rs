//! The Pods that sessions are bound to, watched while the node leads.

use std::convert::Infallible;

use ringfence_core::{Command, Event, Pod, PodEnded, PodSeen, PodUid};
use ringfence_kube::Client;
use ringfence_kube::pods::{Bound, Figures, Watcher};
use ringfence_raft::{Batch, EventFeed, Node, Role};
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
        match feed.since(at, BATCH) {
            Ok(batch) => {
                at = at.max(batch.upto);
                if has_opened(&batch) {
                    watcher.note();
                }
                if has_more(&batch) {
                    continue;
                }
            }
            Err(_) => {
                at = feed.head();
                watcher.note();
                continue;
            }
        }
        feed.changed().await;
    }
}

/// Whether a session was opened.
fn has_opened(batch: &Batch) -> bool {
    let mut events = batch.events.iter();
    events.any(|(_, event)| matches!(event, Event::SessionOpened { .. }))
}

/// Whether there may be events behind these that nothing will wake us for.
fn has_more(batch: &Batch) -> bool {
    batch.events.len() == BATCH
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
    fn a_full_batch_without_a_session_is_read_on_behind() {
        let name = LeaseName::parse("a").unwrap();
        let floor = FencingToken::new(1).unwrap();
        let other = Event::Forgotten { name, floor };
        let opened = Event::SessionOpened {
            session: SessionId::new(1).unwrap(),
        };
        let batch = |events: Vec<Event>| Batch {
            events: events
                .into_iter()
                .map(|event| (Position::default(), event))
                .collect(),
            upto: Position::default(),
        };
        let full = batch(vec![other.clone(); BATCH]);
        assert!(has_more(&full) && !has_opened(&full));
        let last = batch(vec![other, opened]);
        assert!(!has_more(&last) && has_opened(&last));
    }
}
