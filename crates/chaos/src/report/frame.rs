//! The clock of the page, and what stands on it by number.

use std::collections::BTreeMap;

/// The clock of the page, and the numbers of clients and leases on it.
pub(super) struct Frame {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) clients: BTreeMap<u32, i64>,
    pub(super) leases: BTreeMap<usize, usize>,
}

impl Frame {
    /// Microseconds since the begin; what was before it, was at it.
    pub(super) fn at(&self, t: u64) -> i64 {
        let micros = t.min(self.end).saturating_sub(self.begin) / 1_000;
        i64::try_from(micros).unwrap_or(i64::MAX)
    }

    /// The same for an end: -1 if there was none before the run's.
    pub(super) fn until(&self, t: Option<u64>) -> i64 {
        t.filter(|t| *t < self.end).map_or(-1, |t| self.at(t))
    }

    pub(super) fn client(&self, client: u32) -> i64 {
        self.clients.get(&client).copied().unwrap_or(-1)
    }
}

/// What a client is called on the page, and in faults.
pub(super) fn client_name(client: u32) -> String {
    format!("c{client}")
}
