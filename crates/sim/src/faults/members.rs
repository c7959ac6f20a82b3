//! M1 and M2: members that come and go, leadership that is handed over.

use std::time::Duration;

use tokio::time::sleep;

use super::{Fault, Stage, Who};
use crate::node::SimNode;

/// How long a new member may take to catch up.
pub(super) const CATCH_UP: Duration = Duration::from_millis(1_500);

impl Stage {
    pub(super) async fn members(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::HandOver => self.hand_over().await,
            Fault::Replace(who) => self.replace(who).await,
            Fault::ReplaceInSplit(who) => {
                let links = Fault::Isolate(Who::Behind(1));
                tokio::join!(self.network(links, lasts), self.replace(who));
            }
            Fault::InterruptedChange { who, kill } => self.interrupt_change(who, kill, lasts).await,
            Fault::RemoveBesideDead(who) => self.remove_beside_dead(who, lasts).await,
            Fault::JoinFirst { lags } => self.join_first(lags).await,
            other => self.transfers(other, lasts).await,
        }
    }

    async fn hand_over(&self) {
        let leader = self.node(Who::Leader);
        let Some(node) = leader.handle() else { return };
        let caller = self.operator.caller();
        let asking = async move { node.transfer_leader(None, caller).await };
        // It may not come about; that is the leader's business.
        drop(leader.machine().spawn(asking).await);
    }

    /// A new node comes in, gets the vote of an old one, and that one goes.
    async fn replace(&self, who: Who) {
        let old = self.node(who);
        let new = self.world.add_node();
        self.start_again(&new).await;
        sleep(CATCH_UP).await;
        // If it is not known whether it came about both of them stay.
        if self.promote(&new, Some(&old)).await {
            self.retire(&old);
        }
    }

    /// Gives a new node a vote, that of another one if one is named. False if it is not known whether
    /// it came about.
    pub(super) async fn promote(&self, new: &SimNode, old: Option<&SimNode>) -> bool {
        let Some(new_id) = self.id_of(new) else {
            return false;
        };
        let old_id = old.and_then(|old| self.id_of(old));
        if old.is_some() && old_id.is_none() {
            return false;
        }
        let leader = self.node(Who::Leader);
        let Some(node) = leader.handle() else {
            return false;
        };
        let caller = self.operator.caller();
        let asking = async move { node.promote_member(new_id, old_id, caller).await };
        let promoted = leader.machine().spawn(asking).await;
        matches!(promoted, Ok(Ok(())))
    }
}
