//! Followers that forget: what a peer has acknowledged in a term, held against what it answers
//! later in the same term.
//!
//! Within a term the log of a follower only grows. One that answers that it lacks an entry at or
//! below one that it has acknowledged to this leader has lost what its disk had reported as
//! written. The leader can tell, since it holds both answers; the follower alone cannot, since a
//! forgotten end looks like a torn write. The follower is notified, checks, and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::types::type_config::LogId;

/// How often followers were found to have forgotten, on all links of a node.
pub(super) type Reversions = Arc<AtomicU64>;

/// What one peer has acknowledged.
pub(super) struct Watermark {
    state: Mutex<State>,
    reversions: Reversions,
}

#[derive(Default)]
struct State {
    /// The term in which this node leads, as far as it has sent anything.
    term: u64,
    acknowledged: Option<LogId>,
    /// What the peer is notified that it has acknowledged and seems to have lost.
    forgotten: Option<LogId>,
}

impl Watermark {
    pub(super) fn new(reversions: Reversions) -> Self {
        Self {
            state: Mutex::default(),
            reversions,
        }
    }

    /// Something is sent in `term`; returns what to notify the peer of.
    pub(super) fn sending(&self, term: u64) -> Option<LogId> {
        let mut state = self.state.lock();
        if state.term != term {
            *state = State {
                term,
                ..State::default()
            };
        }
        state.forgotten
    }

    /// The peer has acknowledged everything up to `log_id` in `term`.
    pub(super) fn acknowledged(&self, term: u64, log_id: Option<LogId>) {
        let mut state = self.state.lock();
        if state.term == term {
            state.acknowledged = state.acknowledged.max(log_id);
        }
    }

    /// The peer has answered in `term` that it lacks `log_id`.
    pub(super) fn conflicted(&self, term: u64, node_id: u64, log_id: LogId) {
        let mut state = self.state.lock();
        if state.term != term || state.acknowledged < Some(log_id) {
            return;
        }
        let acknowledged = state.acknowledged.take();
        // Counted before the peer can hear of it, and stop.
        self.reversions.fetch_add(1, Ordering::Relaxed);
        state.forgotten = acknowledged;
        drop(state);
        tracing::warn!(
            node_id,
            term,
            lacks = log_id.index,
            acknowledged = acknowledged.map_or(0, |log_id| log_id.index),
            "a follower lost log that it had acknowledged: its disk does not keep what it reports \
             as written; the follower stops and has to join again under a new id"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::type_config::log_id;

    fn watermark() -> (Watermark, Reversions) {
        let reversions = Reversions::default();
        (Watermark::new(reversions.clone()), reversions)
    }

    #[test]
    fn lacking_what_was_acknowledged_in_the_same_term_is_a_reversion() {
        let (watermark, reversions) = watermark();
        assert_eq!(watermark.sending(3), None);
        watermark.acknowledged(3, Some(log_id(3, 20)));
        watermark.conflicted(3, 2, log_id(3, 20));
        assert_eq!(reversions.load(Ordering::Relaxed), 1);
        assert_eq!(watermark.sending(3), Some(log_id(3, 20)));
        assert_eq!(
            watermark.sending(4),
            None,
            "a new term begins without knowledge"
        );
    }

    #[test]
    fn looking_for_the_common_end_of_two_logs_is_none() {
        let (watermark, reversions) = watermark();
        watermark.sending(3);
        watermark.conflicted(3, 2, log_id(2, 90));
        watermark.conflicted(3, 2, log_id(2, 45));
        watermark.acknowledged(3, Some(log_id(2, 22)));
        watermark.conflicted(3, 2, log_id(2, 33));
        // An answer of an earlier term of this node.
        watermark.acknowledged(2, Some(log_id(2, 99)));
        watermark.conflicted(2, 2, log_id(2, 1));
        assert_eq!(reversions.load(Ordering::Relaxed), 0);
        assert_eq!(watermark.sending(3), None);
    }
}
