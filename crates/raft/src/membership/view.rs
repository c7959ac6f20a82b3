//! What the leader sees of its members at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::Instant;
use openraft::async_runtime::WatchReceiver;
use ringfence_core::LEVEL_FIRST;
use ringfence_planted::{Bug, planted};

use crate::network::{Condition, Transport};
use crate::store::state::Raft;
use crate::types::type_config::{LogId, Peer};

/// How far behind the leader's log a member may be and still count as caught up, in entries.
pub(crate) const CAUGHT_UP_ENTRIES: u64 = 1_000;

/// What the leader knows of one member.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// The last log index that it is known to have.
    pub(crate) matched: Option<u64>,
    /// How long ago the leader sent the newest message that it answered.
    pub(crate) heard: Option<Duration>,
    /// What it has announced of itself.
    pub(crate) condition: Condition,
}

/// The members at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The leader's own id.
    pub(crate) me: u64,
    /// The entry that holds this membership.
    pub(crate) at: Option<LogId>,
    /// Whether that entry is committed.
    pub(crate) committed: bool,
    /// One set of voters; two while a change is between its steps, the newer one last.
    pub(crate) configs: Vec<BTreeSet<u64>>,
    pub(crate) peers: BTreeMap<u64, Arc<Peer>>,
    pub(crate) sights: BTreeMap<u64, Sight>,
    /// The leader's last log index.
    pub(crate) last: u64,
    /// The newest index that a majority has.
    pub(crate) committed_index: u64,
    /// How long this leader has led with these voters.
    pub(crate) age: Duration,
    /// A member that has answered within this time is live.
    pub(crate) live_within: Duration,
    /// The level of the state: a voter has to know all log commands up to this version.
    pub(crate) level: u32,
    /// Whether rights are enforced, so that every member needs an authenticated peer port.
    pub(crate) enforced: bool,
}

impl View {
    /// What `raft` knows now; `age`, `level` and what members have announced are to be filled in.
    pub(crate) fn of(raft: &Raft, me: u64, live_within: Duration) -> Self {
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        let membership = &now.membership_config;
        let mut sights: BTreeMap<u64, Sight> = BTreeMap::new();
        for (id, matched) in now.replication.iter().flatten() {
            sights.entry(*id).or_default().matched = matched.as_ref().map(|log_id| log_id.index);
        }
        for (id, acked) in now.heartbeat.iter().flatten() {
            sights.entry(*id).or_default().heard = acked.map(|acked| acked.elapsed());
        }
        Self {
            me,
            at: *membership.log_id(),
            committed: membership.log_id() == now.committed_membership_config.log_id(),
            configs: membership.membership().get_joint_config().clone(),
            peers: membership
                .nodes()
                .map(|(id, peer)| (*id, peer.clone()))
                .collect(),
            sights,
            last: now.last_log_index.unwrap_or(0),
            committed_index: now.local_committed.as_ref().map_or(0, |id| id.index),
            age: Duration::ZERO,
            live_within,
            level: LEVEL_FIRST,
            enforced: false,
        }
    }

    pub(crate) fn is_joint(&self) -> bool {
        self.configs.len() > 1
    }

    /// The voters after the change that is under way, if there is one.
    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.configs.last().cloned().unwrap_or_default()
    }

    pub(crate) fn is_live(&self, id: u64) -> bool {
        let heard = self.heard(id);
        heard.is_some_and(|ago| ago <= self.live_within) || planted(Bug::DeadMembersCounted)
    }

    /// How long ago the leader sent the newest message that a member answered, itself included.
    pub(crate) fn heard(&self, id: u64) -> Option<Duration> {
        if id == self.me {
            return Some(Duration::ZERO);
        }
        self.sights.get(&id).and_then(|sight| sight.heard)
    }

    /// Fills in what the other members have announced of themselves.
    pub(crate) fn look_at_conditions(&mut self, transport: &Transport) {
        for (id, peer) in self.peers.iter().filter(|(id, _)| **id != self.me) {
            self.sights.entry(*id).or_default().condition = transport.link(*id, peer).condition();
        }
    }

    /// Whether a member has room for more log, as far as this leader knows.
    pub(crate) fn has_room(&self, id: u64) -> bool {
        self.sights
            .get(&id)
            .is_none_or(|sight| !sight.condition.no_room)
    }

    /// Whether the voters could do without this leader: in each set of them a majority of others is
    /// live and has room for more log.
    pub(crate) fn others_can_lead(&self) -> bool {
        let able = |id: &&u64| **id != self.me && self.is_live(**id) && self.has_room(**id);
        let majority = |set: &BTreeSet<u64>| set.iter().filter(able).count() > set.len() / 2;
        self.configs.iter().all(majority)
    }

    /// The live voters that have no room for more log, as far as this leader knows.
    pub(crate) fn full(&self) -> BTreeSet<u64> {
        let voters = self.configs.iter().flatten().copied();
        voters
            .filter(|id| self.is_live(*id) && !self.has_room(*id))
            .collect()
    }

    /// Whether some live voters have no room for more log, and the other live ones are no majority: what
    /// is proposed would only use up what those without room set aside for the next term.
    pub(crate) fn lacks_room(&self) -> bool {
        let full = self.full();
        let able = |id: &&u64| self.is_live(**id) && !full.contains(id);
        let majority = |set: &BTreeSet<u64>| set.iter().filter(able).count() > set.len() / 2;
        !full.is_empty() && !self.configs.iter().all(majority)
    }

    /// Whether a member lacks few entries of the leader's log. It says nothing about its life.
    pub(crate) fn has_log(&self, id: u64) -> bool {
        id == self.me
            || self
                .matched(id)
                .is_some_and(|matched| matched + CAUGHT_UP_ENTRIES >= self.last)
    }

    /// The newest version of log commands that a member knows, if the level is beyond it: it stops at
    /// the first command that it does not know.
    pub(crate) fn below_level(&self, id: u64) -> Option<u32> {
        let known = self
            .sights
            .get(&id)
            .map_or(0, |sight| sight.condition.records);
        (id != self.me && self.level > LEVEL_FIRST && known < self.level).then_some(known)
    }

    /// Whether a member's peer port is not known to be authenticated although it has to be.
    pub(crate) fn has_open_port(&self, id: u64) -> bool {
        let sight = self.sights.get(&id);
        let authenticated = sight.is_some_and(|sight| sight.condition.peer_auth);
        self.enforced && id != self.me && !authenticated
    }

    pub(crate) fn matched(&self, id: u64) -> Option<u64> {
        self.sights.get(&id)?.matched
    }

    /// Whether a majority of `voters` is live.
    pub(crate) fn is_live_quorum(&self, voters: &BTreeSet<u64>) -> bool {
        let live = voters.iter().filter(|id| self.is_live(**id)).count();
        live > voters.len() / 2
    }

    /// The voters among these that are not live, for people.
    pub(crate) fn silent(&self, voters: &BTreeSet<u64>) -> String {
        let silent = voters.iter().filter(|id| !self.is_live(**id));
        let names: Vec<String> = silent.map(|id| self.called(*id)).collect();
        names.join(", ")
    }

    /// A member for people.
    pub(crate) fn called(&self, id: u64) -> String {
        match self.peers.get(&id) {
            Some(peer) => format!("{} (node {id})", peer.name),
            None => format!("node {id}"),
        }
    }
}
