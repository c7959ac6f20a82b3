//! The level: the newest version of log commands that every member knows, and what may be logged.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{Command, LEVEL_RESTORE, StateMachine};
use ringfence_proto::record::{RECORD_VERSION, decode_command};

use crate::leader::term::LeaderTerm;
use crate::membership;
use crate::network::Condition;
use crate::types::type_config::{Peer, StoredMembership};

/// The first version of log commands with [`Command::RaiseLevel`].
const LEVELS_FROM: u32 = 3;
/// How often a leader looks whether the level can be raised.
const LEVEL_EVERY: Duration = Duration::from_millis(100);

/// Lets a command of version `needed` pass if every member, by name, knows it.
fn gate(needed: u32, known: impl Iterator<Item = (String, u32)>) -> Result<(), String> {
    let behind: Vec<String> = known
        .filter(|(_, known)| *known < needed)
        .map(|(name, known)| format!("{name} has announced {known}"))
        .collect();
    if behind.is_empty() {
        return Ok(());
    }
    Err(format!(
        "commands of version {needed} wait until every member knows them: {}; upgrade these, or \
         remove those that do not come back",
        behind.join(", ")
    ))
}

/// The version of commands that the state proves to be known by every member: its level, or what
/// stands in the log since before there were levels.
fn in_use(machine: &StateMachine) -> u32 {
    // The first entries of version 2 are those that bind sessions to Pods.
    let proven = if machine.has_pods() { 2 } else { 1 };
    machine.level().max(proven)
}

impl LeaderTerm {
    /// A node stops before an entry that it does not know, so such entries are kept out of the log
    /// until every member has announced that it knows them.
    pub(crate) fn known_by_all(&self, needed: u32, command: &[u8]) -> Result<(), String> {
        // What is in the log already was let pass by a leader before this one. A member that is
        // gone may never announce anything to this one, and the end of a Pod must not wait for it.
        if needed <= in_use(&self.state.machine()) || self.was_agreed(needed, command) {
            return Ok(());
        }
        let announced = self.announced().into_iter();
        gate(
            needed,
            announced.map(|(id, known)| (self.called(id), known)),
        )
    }

    /// Whether this forms a cluster that begins with a backup or a quiet time. Each member named these
    /// when it took its seat, so its release knows what they log. One that is lost since announces
    /// nothing any more.
    fn was_agreed(&self, needed: u32, command: &[u8]) -> bool {
        if !self.beginning_agreed
            || needed > LEVEL_RESTORE
            || self.state.machine().cluster().is_some()
        {
            return false;
        }
        let form = decode_command(command);
        form.is_ok_and(|command| matches!(command.bare(), Command::Form(_)))
    }

    /// What the other members have announced: the newest version of log commands that each knows,
    /// 0 if it was not heard yet.
    pub(crate) fn announced(&self) -> Vec<(u64, u32)> {
        let membership = self.membership();
        let others = membership.nodes().filter(|(id, _)| **id != self.node_id);
        let known = |(id, peer): (&u64, &Arc<Peer>)| {
            let condition = self.transport.link(*id, peer).condition();
            (*id, condition.records)
        };
        others.map(known).collect()
    }

    /// What each member says of itself that was heard, this node included, and how long ago that was.
    pub(crate) fn conditions(&self) -> BTreeMap<u64, (Condition, Duration)> {
        let membership = self.membership();
        let of = |(id, peer): (&u64, &Arc<Peer>)| match *id {
            id if id == self.node_id => {
                let own = Condition::of(&self.log, self.peer_authenticated);
                Some((id, (own, Duration::ZERO)))
            }
            id => Some((id, self.transport.link(id, peer).condition_and_age()?)),
        };
        membership.nodes().filter_map(of).collect()
    }

    /// Whether every member's peer port, this node's included, admits peers alone.
    ///
    /// # Errors
    /// The members whose port does not, or which have announced nothing to this leader yet, and what
    /// to do.
    pub(crate) fn peers_authenticated(&self) -> Result<(), String> {
        let membership = self.membership();
        let open = membership.nodes().filter(|(id, peer)| match **id {
            id if id == self.node_id => !self.peer_authenticated,
            id => !self.transport.link(id, peer).condition().peer_auth,
        });
        let open: Vec<String> = open.map(|(id, _)| self.called(*id)).collect();
        if open.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the peer port is not known to be authenticated on {}: start these with \
             --cluster-secret-file, or with certificates and --peer-tls-name, and without \
             --peer-tls-mode permissive, or remove those that do not come back",
            open.join(", ")
        ))
    }

    /// A member for people.
    pub(crate) fn called(&self, id: u64) -> String {
        let membership = self.membership();
        let peer = membership.nodes().find(|(known, _)| **known == id);
        let name = peer.map_or("", |(_, peer)| peer.name.as_str());
        format!("{name} (node {id})")
    }

    fn membership(&self) -> Arc<StoredMembership> {
        membership::newest(self.raft())
    }

    /// The level that every member knows, if the state's is lower.
    fn level_to_raise(&self) -> Option<u32> {
        let announced = self.announced().into_iter().map(|(_, known)| known);
        let level = announced.min().unwrap_or(u32::MAX).min(RECORD_VERSION);
        let raised = level >= LEVELS_FROM && level > self.state.machine().level();
        raised.then_some(level)
    }

    /// Raises the level whenever every member knows a higher one. So a restart of some members,
    /// which have announced nothing to a new leader yet, takes nothing away.
    pub(crate) async fn keep_level(&self) -> Infallible {
        loop {
            if let Some(level) = self.level_to_raise() {
                match self.write(&Command::RaiseLevel { level }).await {
                    Ok(_) => tracing::info!(level, "every member knows this level"),
                    Err(error) => tracing::debug!(%error, level, "the level is not raised yet"),
                }
            }
            tokio::time::sleep(LEVEL_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_kind_of_command_waits_for_the_last_member_that_does_not_know_it() {
        let known = |versions: [u32; 2]| {
            let names = ["n2".to_owned(), "n3".to_owned()];
            names.into_iter().zip(versions)
        };
        assert_eq!(gate(2, known([2, 3])), Ok(()));
        assert_eq!(gate(2, std::iter::empty()), Ok(()), "alone");
        let why = gate(2, known([2, 1])).unwrap_err();
        assert!(
            why.contains("n3 has announced 1") && !why.contains("n2"),
            "{why}"
        );
        let why = gate(2, known([0, 2])).unwrap_err();
        assert!(why.contains("n2 has announced 0"), "not heard yet: {why}");
    }
}
