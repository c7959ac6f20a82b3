//! Waiting for room in the log.

use std::time::Duration;

use ringfence_planted::{Bug, planted};

use super::{LogStore, ROOM_AGAIN, reserve};
use crate::platform::clock;

/// How long entries wait until there are prepared segments for them, at most. A file system that has
/// no room says so sooner, and so little at a time does no harm to what is set aside.
const PREPARED_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked whether there are.
const PREPARED_AGAIN: Duration = Duration::from_millis(5);

impl LogStore {
    /// Returns once there is room for entries of so many bytes that the leader of `term` has sent,
    /// `waiting` others being under way to the log: in segments that are prepared already, or for a
    /// little in what is set aside in segments of `segment_bytes`.
    ///
    /// Whether there is room for the next segment shows only when it is prepared. Until then nothing is
    /// taken that would need what is set aside: calls of the log wait in their order, so heartbeats and
    /// votes would wait behind these entries.
    pub(crate) async fn has_room_for(
        &self,
        term: u64,
        bytes: u64,
        segment_bytes: u64,
        waiting: impl Fn() -> u64,
    ) {
        let begun = clock::since_boot();
        loop {
            if self.no_room() {
                if !planted(Bug::NewTermsHeldBack)
                    && self.log.reserve.lock().take(term, bytes, segment_bytes)
                {
                    return;
                }
                tokio::time::sleep(ROOM_AGAIN).await;
                continue;
            }
            let need = reserve::on_disk(bytes) + waiting().max(self.unflushed());
            let waited = clock::since_boot().saturating_sub(begun);
            if need <= self.log.prepared() || waited > PREPARED_WITHIN || planted(Bug::ReserveLent)
            {
                self.log.reserve.lock().refill();
                return;
            }
            tokio::time::sleep(PREPARED_AGAIN).await;
        }
    }
}
