//! When a node leads that should not: it offers leadership to others, and says why.

use ringfence_core::WallTime;
use ringfence_planted::{Bug, planted};

use super::LeadershipTask;
use crate::membership;
use crate::platform::clock::believable_seconds;

impl LeadershipTask {
    /// Asks another voter to lead, in turn. It may fail; then this node leads on.
    pub(super) async fn hand_over(&self, turn: usize) {
        let membership = membership::newest(&self.raft);
        let others = membership.voter_ids().filter(|id| *id != self.node_id);
        let others: Vec<u64> = others.collect();
        if others.is_empty() {
            return;
        }
        let to = others[turn % others.len()];
        match self.raft.trigger().transfer_leader(to).await {
            Ok(_) => tracing::info!(to, "leadership was offered to another node"),
            Err(error) => tracing::debug!(to, %error, "leadership could not be offered"),
        }
    }

    /// Why this term may not open by this clock; `None` if it may.
    ///
    /// Only the first entry of a term raises the tokens. So a first member of a restored cluster waits
    /// with it until its clock can be that of the cluster: one that has no other member to hand
    /// leadership to goes on as soon as its clock is set.
    pub(super) async fn clock_in_the_way(&self, wall: WallTime) -> Option<String> {
        if believable_seconds(wall).is_none() && self.needs_clock().await {
            return Some("what this node's clock shows cannot be true".to_owned());
        }
        if self.state.machine().cluster().is_some() || planted(Bug::RestoreClockCheckedOnce) {
            return None;
        }
        let why = self.forming.check_clock(wall).err()?;
        (!self.is_formed().await).then_some(why)
    }

    pub(super) fn say_clock(&self, wall: WallTime, why: &str) {
        let unix_seconds = wall.0 / 1_000;
        if self.state.machine().cluster().is_some() {
            tracing::error!(
                unix_seconds,
                "this node was elected and does not lead yet: each term raises the tokens to the \
                 wall clock, and what this node's clock shows cannot be true; set it and the node \
                 leads without an operator, or another node with a plausible clock will"
            );
        } else {
            tracing::error!(
                unix_seconds,
                waiting_for = why,
                "the cluster waits to be formed: tokens begin at the wall clock of the node that leads; \
                 set it, and forming goes on without an operator (a cluster without a lasting store may \
                 be formed with --token-floor instead)"
            );
        }
    }

    /// Whether this term may not open without a plausible clock. A term that raised no token could
    /// repeat tokens in a cluster whose disks were all rolled back.
    async fn needs_clock(&self) -> bool {
        if !self.is_formed().await {
            return !self.forming.replaces_clock();
        }
        self.state.machine().token_floor().is_none() && !planted(Bug::TermWithoutAClock)
    }
}
