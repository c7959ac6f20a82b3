//! Who waits on this node for a request that stands in a queue. A waiter is kept here only; the
//! place in the queue is replicated, so a lost waiter loses nothing but the message.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use ringfence_core::{
    Acquired, Event, RequestNumber, Scope, SessionId, StateMachine, Verb, WaitEnd,
};
use tokio::sync::oneshot;

/// How a wait came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitDone {
    /// The request waits no more; this is how it stands.
    Settled(Acquired),
    /// Its session is not alive any more.
    SessionGone,
}

type Settle = Box<dyn FnOnce(WaitDone) + Send>;
type Key = (SessionId, RequestNumber, u64);

/// All waiters of a node.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Mutex<BTreeMap<Key, Settle>>,
    next: AtomicU64,
}

/// Waiters whose wait is over, to be notified once the state is unlocked.
#[must_use]
#[derive(Default)]
pub(crate) struct Settled(Vec<(Settle, WaitDone)>);

impl Settled {
    pub(crate) fn tell(self) {
        for (settle, done) in self.0 {
            settle(done);
        }
    }
}

impl Waiters {
    pub(crate) fn register(
        self: &Arc<Self>,
        session: SessionId,
        number: RequestNumber,
        settle: Settle,
    ) -> WaiterKey {
        let key = (session, number, self.next.fetch_add(1, Ordering::Relaxed));
        self.table.lock().insert(key, settle);
        WaiterKey {
            waiters: self.clone(),
            key,
        }
    }

    /// Takes out the waiters whose requests these events settle, as `machine` shows them.
    pub(crate) fn settle<'a>(
        &self,
        machine: &StateMachine,
        events: impl Iterator<Item = &'a Event>,
        settled: &mut Settled,
    ) {
        let mut table = self.table.lock();
        if table.is_empty() {
            return;
        }
        for event in events {
            let (session, first, last) = match event {
                Event::Granted(granted) => (granted.session, granted.request, granted.request),
                Event::WaitEnded {
                    session, request, ..
                } => (*session, *request, *request),
                Event::SessionEnded { session, .. } => (*session, RequestNumber::FIRST, LAST),
                Event::Ended { .. } | Event::SessionOpened { .. } | Event::Forgotten { .. } => {
                    continue;
                }
            };
            let said = said_by(event, machine);
            let keys: Vec<Key> = table
                .range((session, first, 0)..=(session, last, u64::MAX))
                .map(|(k, _)| *k)
                .collect();
            for key in keys {
                settle_one(&mut table, key, machine, said.clone(), settled);
            }
        }
    }

    /// Looks at every waiter again: the state was replaced, and the events in between are unknown.
    pub(crate) fn settle_all(&self, machine: &StateMachine) -> Settled {
        let mut settled = Settled::default();
        let mut table = self.table.lock();
        let keys: Vec<Key> = table.keys().copied().collect();
        for key in keys {
            settle_one(&mut table, key, machine, None, &mut settled);
        }
        settled
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }
}

const LAST: RequestNumber = match RequestNumber::new(u64::MAX) {
    Some(last) => last,
    None => RequestNumber::FIRST,
};

/// How a wait has ended that ends with this event. A session that has confirmed a greater number
/// does not remember the end of a wait any longer, and no later state shows it.
fn said_by(event: &Event, machine: &StateMachine) -> Option<WaitDone> {
    let Event::WaitEnded {
        name, session, why, ..
    } = event
    else {
        return None;
    };
    let acquired = match why {
        WaitEnd::TimedOut => Acquired::TimedOut { name: name.clone() },
        WaitEnd::Cancelled => Acquired::Cancelled {
            name: Some(name.clone()),
        },
        WaitEnd::Refused => {
            let owner = machine.session_owner(*session);
            let access = machine.access();
            let judged = access.judge(owner, Verb::Acquire, Scope::Name(name));
            Acquired::Refused(judged.err()?)
        }
        WaitEnd::SessionEnded => return None,
    };
    Some(WaitDone::Settled(acquired))
}

fn settle_one(
    table: &mut BTreeMap<Key, Settle>,
    key: Key,
    machine: &StateMachine,
    said: Option<WaitDone>,
    settled: &mut Settled,
) {
    let done = match (machine.standing(key.0, key.1), said) {
        (Some(Acquired::Waiting { .. }), _) => return,
        (Some(acquired), _) => WaitDone::Settled(acquired),
        (None, Some(said)) => said,
        // Not remembered: either it has not been applied here yet, or its session is over.
        (None, None) if machine.session(key.0).is_some() || !machine.has_opened(key.0) => return,
        (None, None) => WaitDone::SessionGone,
    };
    if let Some(settle) = table.remove(&key) {
        settled.0.push((settle, done));
    }
}

/// Keeps a registered wait alive; dropping it takes the wait back.
#[must_use = "a wait whose key is dropped is taken back"]
pub struct WaiterKey {
    waiters: Arc<Waiters>,
    key: Key,
}

impl Drop for WaiterKey {
    fn drop(&mut self) {
        let removed = self.waiters.table.lock().remove(&self.key);
        // Dropped outside the lock: what it captured may have drops of its own.
        drop(removed);
    }
}

impl fmt::Debug for WaiterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiter for request {} of {:?}", self.key.1, self.key.0)
    }
}

/// Resolves when a request waits no more. Dropping it takes the wait back here, not in the queue.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Waiter {
    _key: WaiterKey,
    done: oneshot::Receiver<WaitDone>,
}

impl Waiter {
    pub(crate) fn register(
        waiters: &Arc<Waiters>,
        session: SessionId,
        number: RequestNumber,
    ) -> Self {
        let (tell, done) = oneshot::channel();
        let settle = Box::new(move |how| {
            // The caller may have gone meanwhile.
            tell.send(how).ok();
        });
        Self {
            _key: waiters.register(session, number, settle),
            done,
        }
    }
}

impl Future for Waiter {
    type Output = WaitDone;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WaitDone> {
        // The sender is dropped unused only by this waiter's own drop.
        Pin::new(&mut self.done)
            .poll(context)
            .map(|done| done.unwrap_or(WaitDone::SessionGone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_that_is_yet_to_be_opened_here_is_not_gone() {
        let waiters = Arc::new(Waiters::default());
        let session = SessionId::new(7).unwrap();
        let waiter = Waiter::register(&waiters, session, RequestNumber::FIRST);
        // A node that lags installs a snapshot from before the session was opened.
        waiters.settle_all(&StateMachine::new()).tell();
        assert_eq!(waiters.len(), 1);
        drop(waiter);
    }
}
