//! M4, M5, M7: changes of the members at bad moments.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_raft::MembershipError;
use tokio::time::{sleep, timeout};

use super::members::CATCH_UP;
use super::{Fault, Stage, Who};
use crate::node::{Crash, SimNode};
use crate::observe::Observation;

/// How long the first node that joins may take: nothing is broken yet.
const JOINS_WITHIN: Duration = Duration::from_secs(10);
/// For how long nodes have been down when every leader takes them for dead, whatever its timing.
const SURELY_DEAD: Duration = Duration::from_secs(3);
/// How often it is looked whether a change has ended.
const LOOK: Duration = Duration::from_millis(50);

impl Stage {
    /// The id that a running node has in the cluster.
    pub(super) fn id_of(&self, node: &SimNode) -> Option<u64> {
        let handle = node.handle()?;
        node.machine().visit(|| handle.status()).node_id
    }

    /// The voters that a running node knows, while no change is under way.
    fn voters_of(&self, node: &SimNode) -> Option<BTreeSet<u64>> {
        let handle = node.handle()?;
        let voters = node.machine().visit(|| handle.voters())?;
        let settled = voters.is_settled();
        voters.sets.into_iter().next_back().filter(|_| settled)
    }

    /// The voters to whom the newest change leads that a running node knows, be it committed or not.
    fn newest_voters_of(&self, node: &SimNode) -> Option<BTreeSet<u64>> {
        let handle = node.handle()?;
        let voters = node.machine().visit(|| handle.voters())?;
        voters.sets.into_iter().next_back()
    }

    /// A node comes in, and the change that gives it another one's vote ends after its first step.
    pub(super) async fn interrupt_change(&self, who: Who, kill: bool, lasts: Duration) {
        let until = self.world.now() + lasts;
        let old = self.node(who);
        let new = self.world.add_node();
        self.start_again(&new).await;
        sleep(CATCH_UP).await;
        let leader = self.node(Who::Leader);
        let (Some(new_id), Some(old_id)) = (self.id_of(&new), self.id_of(&old)) else {
            return;
        };
        let (Some(mut voters), Some(node)) = (self.voters_of(&leader), leader.handle()) else {
            return;
        };
        voters.remove(&old_id);
        voters.insert(new_id);
        let voters: Vec<u64> = voters.into_iter().collect();
        let asking = async move { node.change_voters_by_half(&voters).await };
        if matches!(leader.machine().spawn(asking).await, Ok(Ok(()))) {
            self.took("M4");
        }
        if kill {
            self.crash(&leader, Crash::Kill, lasts / 4).await;
        }
        // Some leader finishes it. If none does in time both nodes stay.
        while self.world.now() < until {
            sleep(LOOK).await;
            let leader = self.node(Who::Leader);
            let voters = self.voters_of(&leader);
            if voters.is_some_and(|now| now.contains(&new_id) && !now.contains(&old_id)) {
                self.retire(&old);
                return;
            }
        }
    }

    /// A minority goes down, as large as there is one, and then a live voter is to go. If the others
    /// had no live majority the leader has to refuse it.
    pub(super) async fn remove_beside_dead(&self, who: Who, lasts: Duration) {
        let until = self.world.now() + lasts;
        let leader = self.node(Who::Leader);
        let going = self.node(who);
        let (Some(voters), Some(going_id)) = (self.voters_of(&leader), self.id_of(&going)) else {
            return;
        };
        if !voters.contains(&going_id) {
            return;
        }
        let others = self.nodes().into_iter().filter(|node| {
            let stays = node.index() != leader.index() && node.index() != going.index();
            stays && self.id_of(node).is_some_and(|id| voters.contains(&id))
        });
        let minority = voters.len().saturating_sub(1) / 2;
        let dead: Vec<(SimNode, u64)> = others
            .take(minority)
            .filter_map(|node| Some((node.clone(), self.id_of(&node)?)))
            .collect();
        let starts = |dead: &[(SimNode, u64)]| -> Vec<u64> {
            dead.iter().map(|(node, _)| node.starts()).collect()
        };
        for (node, _) in &dead {
            node.crash(Crash::Kill);
        }
        let before = starts(&dead);
        sleep(SURELY_DEAD).await;
        // Another fault may have asked for the same while those were alive.
        let newest = self.newest_voters_of(&self.node(Who::Leader));
        let votes = newest.is_some_and(|voters| voters.contains(&going_id));
        let removed = self.remove(going_id).await;
        // A change that no leader can commit is not answered, and yet it has begun.
        if let Some(voters) = self.newest_voters_of(&self.node(Who::Leader))
            && votes
            && !voters.contains(&going_id)
        {
            let still = starts(&dead);
            let down = dead.iter().zip(before).zip(still);
            let down = down.filter(|(((node, id), before), still)| {
                !node.is_running() && before == still && voters.contains(id)
            });
            self.recorder.see(Observation::VoterRemoved {
                left: voters.len(),
                dead: down.count(),
            });
        }
        if removed == Ok(()) {
            self.retire(&going);
            self.grow().await;
        }
        if matches!(removed, Ok(()) | Err(MembershipError::Refused { .. })) {
            self.took("M5");
        }
        sleep(until.saturating_sub(self.world.now())).await;
        for (node, _) in &dead {
            self.start_again(node).await;
        }
    }

    /// A new node comes in and gets a vote: two voters outlive no fault.
    async fn grow(&self) {
        let new = self.world.add_node();
        self.start_again(&new).await;
        sleep(CATCH_UP).await;
        self.promote(&new, None).await;
    }

    /// Whether the voters outlive the loss of a disk, whichever node's it is: two of them do not.
    pub(super) fn can_lose_a_disk(&self) -> bool {
        let nodes = self.nodes();
        let known = nodes.iter().filter_map(|node| {
            let handle = node.handle()?;
            node.machine().visit(|| handle.voters())
        });
        known
            .flat_map(|voters| voters.sets)
            .all(|voters| voters.len() > 2)
    }

    async fn remove(&self, id: u64) -> Result<(), MembershipError> {
        let unknown = || MembershipError::Unknown {
            why: "no node was there".to_owned(),
        };
        let leader = self.node(Who::Leader);
        let node = leader.handle().ok_or_else(unknown)?;
        let caller = self.operator.caller();
        let asking = async move { node.remove_member(id, caller).await };
        let asked = leader.machine().spawn(asking).await;
        asked.unwrap_or_else(|_| Err(unknown()))
    }

    /// The first entry that anybody has written is that of a node that joins.
    pub(super) async fn join_first(&self, lags: bool) {
        let slow = self.node(Who::Behind(1));
        let links = match lags {
            true => self.links(&Fault::Isolate(Who::Behind(1))),
            false => Vec::new(),
        };
        self.cut(&links);
        let new = self.world.add_node();
        self.start_again(&new).await;
        let joined = timeout(JOINS_WITHIN, async {
            while self.id_of(&new).is_none() {
                sleep(LOOK).await;
            }
        });
        if joined.await.is_ok() {
            self.took("M7");
        }
        if lags {
            self.fill_log_until_behind(&slow).await;
        }
        self.mend(&links);
    }
}
