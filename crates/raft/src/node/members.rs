//! What the server sees of the members.

use std::time::Duration;

use ringfence_core::Caller;
use ringfence_proto::raft as pb;

use super::half::change_by_half;
use crate::requests::change::{self, By, asked_by};

use crate::leader::hand_over::hand_over;
use crate::leader::term::Route;
use crate::membership::error::MembershipError;
use crate::membership::list::{self, Member};
use crate::membership::standing::{NotReady, Standing, Voters};
use crate::node::Node;
use crate::types::codec::peer_to_pb;
use crate::types::incarnation::Incarnation;
use crate::types::type_config::Peer;

impl Node {
    /// The members as this node knows them; only a leader knows how far each has come.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let leader = self.inner.route.borrow().leader();
        let running = self.inner.running.get();
        running
            .map(|running| list::members(&running.raft, leader))
            .unwrap_or_default()
    }

    /// Whether this node's peer port admits those alone who show a certificate with a name of peers.
    #[must_use]
    pub fn peer_authenticated(&self) -> bool {
        self.inner.config.peer_authenticated()
    }

    /// Whether that is so on every member, as this node knows if it leads.
    ///
    /// # Errors
    /// Which members' ports are not known to be, and what to do; or that this node does not lead.
    pub fn peers_authenticated(&self) -> Result<(), String> {
        match &*self.inner.route.borrow() {
            Route::Leader(leading) => leading.peers_authenticated(),
            Route::NoLeader | Route::Follower(_) => {
                Err("this node does not lead, and only a leader hears from every member".to_owned())
            }
        }
    }

    /// The members as the leader knows them.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn members_of_leader(&self) -> Result<Vec<Member>, MembershipError> {
        let changed = self
            .change(
                By::Client(None),
                pb::change_members::Change::List(pb::Nothing {}),
            )
            .await?;
        Ok(changed
            .members
            .into_iter()
            .filter_map(list::member_from_pb)
            .collect())
    }

    /// Takes a node in as a learner and says under which id. Nodes ask for this themselves when
    /// they join; one that is a member already keeps its id.
    ///
    /// Here and below, `caller` is who asks as far as it was proven. Once callers are proven, the log
    /// judges whether it may `operate`, and keeps who asked.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_member(
        &self,
        name: String,
        peer_address: String,
        client_address: String,
        incarnation: Incarnation,
        caller: Option<Caller>,
    ) -> Result<u64, MembershipError> {
        let peer = Peer {
            name,
            peer_address,
            client_address,
            incarnation,
        };
        let add = pb::change_members::Change::Add(peer_to_pb(0, &peer));
        let added = self.change(By::Client(caller), add).await?;
        Ok(added.node_id)
    }

    /// Gives a live learner that has caught up a vote, in one change with the removal of
    /// `replaces`, or of the voter that has its name, if there is one.
    ///
    /// # Errors
    /// See [`MembershipError`]; refused if the voters after it had no live majority.
    pub async fn promote_member(
        &self,
        node_id: u64,
        replaces: Option<u64>,
        caller: Option<Caller>,
    ) -> Result<(), MembershipError> {
        self.promote(node_id, replaces, false, caller).await
    }

    /// The same without regard to who is live and has caught up. The cluster may stand still until
    /// the missing nodes are back.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn force_promote_member(
        &self,
        node_id: u64,
        replaces: Option<u64>,
        caller: Option<Caller>,
    ) -> Result<(), MembershipError> {
        self.promote(node_id, replaces, true, caller).await
    }

    async fn promote(
        &self,
        node_id: u64,
        replaces: Option<u64>,
        force: bool,
        caller: Option<Caller>,
    ) -> Result<(), MembershipError> {
        let replaces = replaces.unwrap_or(0);
        let promote = pb::change_members::Promote { node_id, replaces };
        let change = pb::change_members::Change::Promote(promote);
        drop(self.change_with(By::Client(caller), change, force).await?);
        Ok(())
    }

    /// Removes a member; its id is never used again. A voter is removed from voters that have been
    /// the same for 2 s (twice as long as a member may be silent): the call waits for that.
    ///
    /// # Errors
    /// See [`MembershipError`]; refused for the last voter, and if the voters that are left had no
    /// live majority.
    pub async fn remove_member(
        &self,
        node_id: u64,
        caller: Option<Caller>,
    ) -> Result<(), MembershipError> {
        let change = pb::change_members::Change::Remove(node_id);
        drop(self.change_with(By::Client(caller), change, false).await?);
        Ok(())
    }

    /// The same at once and without regard to who is live. The cluster may stand still until the
    /// missing nodes are back.
    ///
    /// # Errors
    /// See [`MembershipError`]; the last voter cannot be removed.
    pub async fn force_remove_member(
        &self,
        node_id: u64,
        caller: Option<Caller>,
    ) -> Result<(), MembershipError> {
        let change = pb::change_members::Change::Remove(node_id);
        drop(self.change_with(By::Client(caller), change, true).await?);
        Ok(())
    }

    /// Removes this very node, as [`Node::remove_member`] does. No client asks for it, so it needs no
    /// right.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn leave(&self) -> Result<(), MembershipError> {
        let running = self.inner.running.get();
        let running =
            running.ok_or_else(|| MembershipError::not_done("this node belongs to no cluster"))?;
        let change = pb::change_members::Change::Remove(running.caller.seat.node_id);
        drop(self.change_with(By::Itself, change, false).await?);
        Ok(())
    }

    /// Whose votes count, as this node knows it; `None` while it belongs to no cluster.
    #[must_use]
    pub fn voters(&self) -> Option<Voters> {
        let running = self.inner.running.get()?;
        let (newest, committed) = (running.membership(), running.committed_membership());
        Some(Voters::of(&newest, &committed))
    }

    /// How many voters answer and lack few entries of the log, as this node sees them as the leader,
    /// itself included; `None` if it does not lead. While the voters change, those after the change
    /// count.
    #[must_use]
    pub fn voters_caught_up(&self) -> Option<usize> {
        let route = self.inner.route.borrow();
        let Route::Leader(leading) = &*route else {
            return None;
        };
        let view = leading.members.view();
        let able = |id: &&u64| view.is_live(**id) && view.has_log(**id);
        Some(view.voters().iter().filter(able).count())
    }

    /// What this node is among the members that it knows.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.inner.standing()
    }

    /// Fine if this node can serve clients, and its state is at most `age_max` old.
    ///
    /// # Errors
    /// [`NotReady`] says why not.
    pub fn ready(&self, age_max: Duration) -> Result<(), NotReady> {
        let status = self.status();
        if status.cluster.is_none() {
            return Err(NotReady::NoCluster);
        }
        let Some(leader) = status.leader else {
            let heard = self.inner.leader_ago();
            let term = status.term;
            return Err(NotReady::NoLeader { term, heard });
        };
        match self.standing() {
            Standing::DataLost { node_id, former } => {
                return Err(NotReady::DataLost { node_id, former });
            }
            Standing::None | Standing::Learner(_) if self.inner.config.join_as_voter => {
                return Err(NotReady::NoVote);
            }
            Standing::None | Standing::Learner(_) | Standing::Voter => {}
        }
        if self
            .inner
            .running
            .get()
            .is_some_and(|running| running.log.no_room())
        {
            return Err(NotReady::NoRoom);
        }
        match self.age() {
            Some(age) if age <= age_max => Ok(()),
            Some(lag) if self.inner.leads_alone() => Err(NotReady::DiskBehind { lag }),
            age => Err(NotReady::Stale {
                leader: leader.node_id,
                age,
            }),
        }
    }

    /// Makes the first step of a change of the voters, if this node leads, and leaves the second
    /// one to the next reconciler; for tests.
    ///
    /// # Errors
    /// See [`MembershipError`].
    #[doc(hidden)]
    pub async fn change_voters_by_half(&self, to: &[u64]) -> Result<(), MembershipError> {
        let running = self.inner.running.get().filter(|_| self.leads());
        let running = running.ok_or_else(|| MembershipError::NotDone {
            why: "this node does not lead".to_owned(),
        })?;
        change_by_half(running, to.iter().copied().collect()).await
    }

    /// Hands leadership to a voter, or to the one that is furthest ahead, and says who leads.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn transfer_leader(
        &self,
        to: Option<u64>,
        caller: Option<Caller>,
    ) -> Result<u64, MembershipError> {
        let change = pb::change_members::Change::TransferLeader(to.unwrap_or(0));
        Ok(self.change(By::Client(caller), change).await?.node_id)
    }

    async fn change(
        &self,
        by: By,
        change: pb::change_members::Change,
    ) -> Result<pb::MembersChanged, MembershipError> {
        self.change_with(by, change, false).await
    }

    async fn change_with(
        &self,
        by: By,
        change: pb::change_members::Change,
        force: bool,
    ) -> Result<pb::MembersChanged, MembershipError> {
        let change = asked_by(by, change, force);
        change::change(&self.inner.route, self.inner.config.timing, change).await
    }

    fn leads(&self) -> bool {
        matches!(&*self.inner.route.borrow(), Route::Leader(_))
    }

    /// Hands leadership to another voter if this node leads and there is one, in `limit` at most.
    /// The node goes on as a follower.
    pub async fn resign(&self, limit: Duration) {
        let Route::Leader(leading) = self.inner.route.borrow().clone() else {
            return;
        };
        if leading.members.has_one_voter() {
            return;
        }
        let handed = hand_over(&leading, 0);
        match tokio::time::timeout(limit, handed).await {
            Ok(Ok(to)) => tracing::info!(to, "leadership is handed over"),
            Ok(Err(error)) => tracing::warn!(%error, "leadership is not handed over"),
            Err(_) => tracing::warn!("leadership is not handed over in time"),
        }
    }
}
