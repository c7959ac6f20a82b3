//! A flag that tasks wait for, and are woken in the order in which they came: tokio's `watch` wakes
//! its waiters in an order of its own random numbers.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

pub(crate) struct Flag {
    set: AtomicBool,
    changed: Notify,
}

impl Flag {
    pub(crate) fn new(set: bool) -> Self {
        Self {
            set: AtomicBool::new(set),
            changed: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Returns what it was before.
    pub(crate) fn set(&self, set: bool) -> bool {
        let before = self.set.swap(set, Ordering::Relaxed);
        self.changed.notify_waiters();
        before
    }

    /// Completes while it is as wanted.
    pub(crate) async fn is(&self, wanted: bool) {
        loop {
            let changed = self.changed.notified();
            if self.get() == wanted {
                return;
            }
            changed.await;
        }
    }
}
