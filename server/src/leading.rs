//! Work that only the leading node does, so that one node of a cluster does it, and the events that such
//! work follows.

use std::convert::Infallible;

use ringfence_raft::{Batch, EventFeed, Node, Position, Role};
use tokio::sync::watch;
use tracing::info;

/// How many events are taken at once.
const BATCH: usize = 1_000;

/// Does `work` whenever `node` leads, until it is stopping; `does` is what another node does then.
pub(crate) async fn while_leading<W: Future<Output = Infallible>>(
    node: &Node,
    mut stopping: watch::Receiver<bool>,
    does: &str,
    work: impl Fn() -> W,
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
        tokio::select! {
            never = work() => match never {},
            _ = status.wait_for(|status| status.role != Role::Leader) => {
                info!("no longer the leader: another node {does}");
            }
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// Passes on what happens behind `at`; `None` if events were missed.
pub(crate) async fn follow(
    mut feed: EventFeed,
    mut at: Position,
    mut note: impl FnMut(Option<&Batch>),
) -> Infallible {
    loop {
        match feed.since(at, BATCH) {
            Ok(batch) => {
                at = at.max(batch.upto);
                note(Some(&batch));
                if has_more(&batch) {
                    continue;
                }
            }
            Err(_) => {
                at = feed.head();
                note(None);
                continue;
            }
        }
        feed.changed().await;
    }
}

/// Whether there may be events behind these that nothing will wake us for.
fn has_more(batch: &Batch) -> bool {
    batch.events.len() >= BATCH
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Event, FencingToken, LeaseName};

    use super::*;

    #[test]
    fn behind_a_full_batch_there_may_be_more() {
        let event = Event::Forgotten {
            name: LeaseName::parse("a").unwrap(),
            floor: FencingToken::new(1).unwrap(),
        };
        let batch = |count| Batch {
            events: vec![(Position::default(), event.clone()); count],
            upto: Position::default(),
        };
        assert!(has_more(&batch(BATCH)));
        assert!(!has_more(&batch(BATCH - 1)));
    }
}
