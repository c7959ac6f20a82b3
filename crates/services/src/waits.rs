//! The waits of one caller, so that they are forgotten with it. The places in the queues remain: a
//! broken stream, or a call that is given up, ends nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_raft::WaiterKey;

/// The waits of one stream, or of one call.
#[derive(Default)]
pub(super) struct Waits {
    inner: Mutex<WaitTable>,
}

#[derive(Default)]
struct WaitTable {
    next: u64,
    /// `None` between the drawing of a number and the registration. In order, so that a simulation
    /// repeats: forgetting a wait may run code.
    keys: BTreeMap<u64, Option<WaiterKey>>,
}

/// Waits that are forgotten when this is dropped.
#[derive(Default)]
pub(super) struct OwnedWaits(Arc<Waits>);

impl OwnedWaits {
    pub(super) fn waits(&self) -> &Arc<Waits> {
        &self.0
    }
}

impl Drop for OwnedWaits {
    fn drop(&mut self) {
        self.0.forget_all();
    }
}

impl Waits {
    /// Draws a number for a wait that will be registered.
    pub(super) fn begin(&self) -> u64 {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.keys.insert(number, None);
        number
    }

    /// Keeps the registration of a wait, unless the wait or its caller has ended meanwhile.
    pub(super) fn keep(&self, number: u64, key: WaiterKey) {
        let mut table = self.lock();
        let unwanted = match table.keys.get_mut(&number) {
            Some(slot) => slot.replace(key),
            None => Some(key),
        };
        // Dropped outside the lock: it may run the wait's closure, which comes back here.
        drop(table);
        drop(unwanted);
    }

    /// The wait has ended.
    pub(super) fn forget(&self, number: u64) {
        let key = self.lock().keys.remove(&number);
        drop(key);
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.lock().keys.is_empty()
    }

    /// All waits that were begun end here.
    pub(super) fn forget_all(&self) {
        let mut table = self.lock();
        let keys = std::mem::take(&mut table.keys);
        drop(table);
        drop(keys);
    }

    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        // Nothing panics while it holds the lock, so that the table is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
