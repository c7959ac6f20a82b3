//! Room for a number of leases that may be held together.

use std::sync::Arc;

use tokio::sync::watch;

/// How many leases may be held together.
#[derive(Debug)]
pub(super) struct LeaseLimit {
    most: usize,
    taken: watch::Sender<usize>,
}

/// A held lease's place in it.
#[derive(Debug)]
pub(super) struct LeasePermit(Arc<LeaseLimit>);

impl LeaseLimit {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: watch::Sender::new(0),
        })
    }

    /// Waits until there is room.
    pub(super) async fn free(&self) {
        let mut taken = self.taken.subscribe();
        // The sender lives as long as this does.
        taken.wait_for(|taken| *taken < self.most).await.ok();
    }

    /// Waits until there is none.
    pub(super) async fn full(&self) {
        let mut taken = self.taken.subscribe();
        taken.wait_for(|taken| *taken >= self.most).await.ok();
    }

    /// Takes a place, if one is left.
    pub(super) fn take(self: &Arc<Self>) -> Option<LeasePermit> {
        let taken = self.taken.send_if_modified(|taken| {
            let free = *taken < self.most;
            *taken += usize::from(free);
            free
        });
        taken.then(|| LeasePermit(Arc::clone(self)))
    }
}

impl Drop for LeasePermit {
    fn drop(&mut self) {
        self.0.taken.send_modify(|taken| *taken -= 1);
    }
}
