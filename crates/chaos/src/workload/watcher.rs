//! A watch of all leases, written down as it comes.

use ringfence_check::history::{Record, WatchEvent, WatchKind, WatchProgress, WatchStarted};
use ringfence_client::{Position, Watch, WatchItem};

use super::outcome;
use super::recorder::Recorder;
use crate::clock::now_ns;

/// Follows the watch as long as the process lives.
pub(super) async fn run(mut watch: Watch, recorder: Recorder, prefix: String) {
    let watcher = recorder.client();
    while let Some(told) = watch.next().await {
        match told {
            Ok(WatchItem::Restarted(_)) => recorder.put(&Record::WatchStarted(WatchStarted {
                watcher,
                client: recorder.client(),
                t: now_ns(),
                prefix: prefix.clone(),
                after: None,
            })),
            Ok(WatchItem::Granted { grant, position }) => {
                let grant_of = Event {
                    kind: WatchKind::Granted,
                    lease: grant.name.to_string(),
                    token: grant.token.get(),
                    session: grant.session.get(),
                    holder: Some(grant.identity),
                };
                grant_of.tell(&recorder, watcher, position);
            }
            Ok(WatchItem::Ended { ended, position }) => {
                let cause = ended.cause.as_ref().map(outcome::of_grant_end);
                let Some(cause) = cause else { continue };
                let end_of = Event {
                    kind: WatchKind::Ended(cause),
                    lease: ended.name.to_string(),
                    token: ended.token.get(),
                    session: ended.session.get(),
                    holder: None,
                };
                end_of.tell(&recorder, watcher, position);
            }
            Ok(WatchItem::Reached(position)) => {
                // A position may lie within an entry, of which the rest is then still to be
                // reported.
                let whole = position.events().is_none();
                let index = position.index().saturating_sub(u64::from(!whole));
                recorder.put(&Record::WatchProgress(WatchProgress {
                    watcher,
                    t: now_ns(),
                    index,
                }));
            }
            // The present state tells nothing about the order of things.
            Ok(_) => {}
            Err(error) => recorder.note(format!("the watch was refused: {error}")),
        }
    }
}

struct Event {
    kind: WatchKind,
    lease: String,
    token: u64,
    session: u64,
    holder: Option<String>,
}

impl Event {
    fn tell(self, recorder: &Recorder, watcher: u32, position: Position) {
        recorder.put(&Record::WatchEvent(WatchEvent {
            watcher,
            t: now_ns(),
            index: position.index(),
            n: position.events().unwrap_or(u32::MAX),
            kind: self.kind,
            lease: self.lease,
            token: self.token,
            session: Some(self.session),
            holder: self.holder,
        }));
    }
}
