//! What a leader keeps about the members, in one term.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::error::MembershipError;
use super::view::View;
use super::wish::{Ask, Outcome, WISHES_MAX, Wish, Wishes};
use crate::store::state::Raft;

/// The part of a term that callers share with its reconciler.
pub(crate) struct MembersOfTerm {
    raft: Raft,
    node_id: u64,
    live_within: Duration,
    wishes: Wishes,
    /// For how many microseconds the disk has finished nothing although entries wait for it.
    flush_lag_micros: AtomicU64,
    /// See [`View::lacks_room`].
    lack_room: AtomicBool,
}

impl MembersOfTerm {
    /// Also returns where the reconciler gets the wishes from.
    pub(crate) fn new(
        raft: &Raft,
        node_id: u64,
        live_within: Duration,
    ) -> (Self, mpsc::Receiver<Wish>) {
        let (wishes, incoming) = mpsc::channel(WISHES_MAX);
        let members = Self {
            raft: raft.clone(),
            node_id,
            live_within,
            wishes,
            flush_lag_micros: AtomicU64::new(0),
            lack_room: AtomicBool::new(false),
        };
        (members, incoming)
    }

    /// The members as this leader sees them now.
    pub(crate) fn view(&self) -> View {
        View::of(&self.raft, self.node_id, self.live_within)
    }

    /// Notes for how long the disk has made no progress although entries wait for it.
    pub(crate) fn note_flush_lag(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.flush_lag_micros.store(micros, Ordering::Relaxed);
    }

    /// The lag that was noted last.
    pub(crate) fn flush_lag(&self) -> Duration {
        Duration::from_micros(self.flush_lag_micros.load(Ordering::Relaxed))
    }

    /// Notes whether nothing can be committed without members that have no room.
    pub(crate) fn note_room(&self, lacks: bool) {
        self.lack_room.store(lacks, Ordering::Relaxed);
    }

    /// What was noted last.
    pub(crate) fn lack_room(&self) -> bool {
        self.lack_room.load(Ordering::Relaxed)
    }

    /// Whether this leader needs no other node to commit.
    pub(crate) fn has_one_voter(&self) -> bool {
        let membership = super::newest(&self.raft);
        membership.voter_ids().eq([self.node_id])
    }

    /// Hands a wish to the reconciler of this term and waits until it is fulfilled or refused, for
    /// `lasts` at most. Says which member it was about.
    pub(crate) async fn wish(&self, ask: Ask, lasts: Duration) -> Outcome {
        let (wish, outcome) = Wish::new(ask, lasts);
        if let Err(mpsc::error::TrySendError::Full(_)) = self.wishes.try_send(wish) {
            return Err(MembershipError::not_done(format!(
                "{WISHES_MAX} changes of the members wait already"
            )));
        }
        // A wish that is dropped answers automatically.
        let lost = || Err(MembershipError::unknown("the leader lost the change"));
        outcome.await.unwrap_or_else(|_| lost())
    }
}
