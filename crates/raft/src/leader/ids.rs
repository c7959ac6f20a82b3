//! Ids of nodes that join a formed cluster.
//!
//! An id is the index of a committed entry, so no two draws of a cluster's life are equal. First
//! members have ids of their own, 1 to [`FIRST_MEMBERS_MAX`] at most, and ids that are drawn lie
//! above these. So a drawn id was never a member's, without a record of those that are gone.

use futures_util::future::join_all;
use ringfence_core::{Command, Outcome};
use ringfence_planted::{Bug, planted};

use crate::leader::term::LeaderTerm;
use crate::membership::error::MembershipError;
use crate::membership::list::FIRST_MEMBERS_MAX;
use crate::membership::view::View;

/// Draws an id that no member of this cluster has or ever had. In a young log it takes as many
/// entries as the log lacks to the first free id; they are written together.
pub(crate) async fn draw(leading: &LeaderTerm, view: &View) -> Result<u64, MembershipError> {
    let lacking = (FIRST_MEMBERS_MAX as u64).saturating_sub(view.last);
    let draws = 0..=lacking.min(FIRST_MEMBERS_MAX as u64);
    let drawn = join_all(draws.map(|_| leading.write(&Command::DrawNodeId))).await;
    let mut free = None;
    for applied in drawn {
        let Outcome::NodeId(node_id) = applied?.outcome else {
            return Err(MembershipError::not_done("the log gave no node id"));
        };
        if is_new(node_id, view) || planted(Bug::NodeIdOfAFirstMember) {
            free = free.or(Some(node_id));
        }
    }
    free.ok_or_else(|| MembershipError::not_done("no free node id was drawn yet"))
}

fn is_new(node_id: u64, view: &View) -> bool {
    let newest = view.peers.keys().max().copied().unwrap_or(0);
    node_id > newest.max(FIRST_MEMBERS_MAX as u64)
}
