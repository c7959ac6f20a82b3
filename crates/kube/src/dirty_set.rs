//! What has changed since the mirror last looked: noted at once by the code that applies entries,
//! taken by the mirror when it can.
//!
//! Noting takes a short lock and never waits for Kubernetes. A lease that changes often is noted
//! once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_core::LeaseName;
use tokio::sync::Notify;

use crate::clock;
use crate::limits::DIRTY_MAX;

/// Leases that are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct DirtySet {
    noted: Mutex<Dirty>,
    wake: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// It is unknown which; so all of them.
    pub(crate) all: bool,
    /// With the moment of the first change of each.
    pub(crate) leases: BTreeMap<LeaseName, Instant>,
}

impl DirtySet {
    /// A lease has changed.
    pub(crate) fn note(&self, lease: LeaseName) {
        let mut noted = self.lock();
        if noted.all {
            return;
        }
        noted.leases.entry(lease).or_insert_with(clock::now);
        if noted.leases.len() > DIRTY_MAX {
            noted.leases.clear();
            noted.all = true;
        }
        drop(noted);
        self.wake.notify_one();
    }

    /// Any lease may have changed.
    pub(crate) fn note_all(&self) {
        let mut noted = self.lock();
        noted.leases.clear();
        noted.all = true;
        drop(noted);
        self.wake.notify_one();
    }

    /// Takes everything that was noted; waits while there is nothing. Nothing is lost if the wait
    /// is given up.
    pub(crate) async fn take(&self) -> Dirty {
        loop {
            let noted = std::mem::take(&mut *self.lock());
            if noted.all || !noted.leases.is_empty() {
                return noted;
            }
            self.wake.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Dirty> {
        // Nothing panics while it holds the lock, so that the notes are whole.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(n: usize) -> LeaseName {
        LeaseName::parse(&format!("k8s/demo/l{n}")).unwrap()
    }

    #[tokio::test]
    async fn a_lease_is_noted_once_however_often_it_changes() {
        let notes = DirtySet::default();
        (0..3).for_each(|_| notes.note(lease(1)));
        notes.note(lease(2));

        let noted = notes.take().await;
        assert!(!noted.all);
        assert_eq!(
            noted.leases.into_keys().collect::<Vec<_>>(),
            [lease(1), lease(2)]
        );
    }

    #[tokio::test]
    async fn more_changes_than_there_is_room_for_mean_all() {
        let notes = DirtySet::default();
        (0..=DIRTY_MAX).for_each(|n| notes.note(lease(n)));

        let noted = notes.take().await;
        assert!(noted.all && noted.leases.is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let notes = DirtySet::default();
        let waiting = async { notes.take().await.all };
        let noting = async { notes.note_all() };
        assert!(tokio::join!(waiting, noting).0);
    }
}
