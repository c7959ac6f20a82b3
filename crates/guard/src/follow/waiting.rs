//! Those who wait for the floor of a name, and the next item of a stream.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use ringfence_core::LeaseName;
use tokio::sync::Notify;

/// Who waits, by name: a rise wakes those of its own name only. A name has an entry as long as
/// a request waits for it.
#[derive(Default)]
pub(super) struct Waiting(HashMap<LeaseName, Bell>);

struct Bell {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Waiting {
    /// One more waits; [`Waiting::leave`] takes it back.
    pub(super) fn join(&mut self, name: &LeaseName) -> Arc<Notify> {
        let bell = self.0.entry(name.clone()).or_insert_with(|| Bell {
            notify: Arc::default(),
            waiters: 0,
        });
        bell.waiters += 1;
        Arc::clone(&bell.notify)
    }

    pub(super) fn leave(&mut self, name: &LeaseName) {
        if let Some(bell) = self.0.get_mut(name) {
            bell.waiters -= 1;
            if bell.waiters == 0 {
                self.0.remove(name);
            }
        }
    }

    pub(super) fn wake(&self, name: &LeaseName) {
        if let Some(bell) = self.0.get(name) {
            bell.notify.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        for bell in self.0.values() {
            bell.notify.notify_waiters();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The next item of a stream.
pub(super) async fn next_of<S: Stream>(mut stream: Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}
