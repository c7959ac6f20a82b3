//! M1 to M3: members that come and go, leadership that is handed over, nodes that are left behind.

use std::time::Duration;

use tokio::time::sleep;

use super::{Fault, Stage, Who};
use crate::node::{Crash, SimNode};

/// How long a new member may take to catch up.
const CATCH_UP: Duration = Duration::from_millis(1_500);

impl Stage {
    pub(super) async fn members(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::LeftBehind(who) => self.crash(&self.node(who), Crash::Kill, lasts).await,
            Fault::HandOver => self.hand_over().await,
            Fault::Replace(who) => self.replace(who).await,
            Fault::ReplaceInSplit(who) => {
                let links = Fault::Isolate(Who::Behind(1));
                tokio::join!(self.network(links, lasts), self.replace(who));
            }
            _ => {}
        }
    }

    async fn hand_over(&self) {
        let leader = self.node(Who::Leader);
        let Some(node) = leader.handle() else { return };
        let asking = async move { node.transfer_leader(None).await };
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
        if self.promote(&new, &old).await {
            self.retire(&old);
        }
    }

    async fn promote(&self, new: &SimNode, old: &SimNode) -> bool {
        let id = |node: &SimNode| {
            let handle = node.handle()?;
            node.machine().visit(|| handle.status()).node_id
        };
        let (Some(new_id), Some(old_id)) = (id(new), id(old)) else {
            return false;
        };
        let leader = self.node(Who::Leader);
        let Some(node) = leader.handle() else {
            return false;
        };
        let asking = async move { node.promote_member(new_id, Some(old_id)).await };
        let promoted = leader.machine().spawn(asking).await;
        matches!(promoted, Ok(Ok(())))
    }
}
