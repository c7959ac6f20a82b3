//! What a wish needs next, decided from what the leader sees: no clock, no network, no side effect.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::MembershipError;
use super::view::View;
use super::wish::Ask;
use crate::types::type_config::Peer;

/// How long the voters must have been the same before one of them is removed, in times of
/// [`View::live_within`]: long enough to see that they work before they become fewer again. With
/// the standard timing it is 2 s.
const SETTLED_TIMES: u32 = 2;

/// One step towards a wish. After each the plan is made again from a new view.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is left to do: the member with this id is what was wished.
    Done(u64),
    /// It will not be done.
    Refuse(String),
    /// It cannot be done yet, for this reason.
    Wait(String),
    /// Draw an id and take this node in under it.
    TakeIn(Peer),
    /// Drop members that have no vote.
    DropLearners(BTreeSet<u64>),
    /// Make these the voters. Those that lose their vote are dropped.
    SetVoters(BTreeSet<u64>),
    /// This leader is to lose its vote: another one has to lead first.
    HandOver,
}

impl Step {
    fn refuse(why: impl Into<String>) -> Self {
        Self::Refuse(why.into())
    }
}

/// What a wish needs next. `waited`: how long it has waited so far. `begun`: whether an entry of it
/// may be in the log.
///
/// A membership that is joint or not committed is finished first, so it is never planned on.
pub(crate) fn next(view: &View, ask: &Ask, waited: Duration, begun: bool) -> Step {
    match ask {
        Ask::Add(peer) => add(view, peer),
        Ask::Promote {
            node_id,
            replaces,
            force,
        } => Plan::new(view, waited, *force).promote(*node_id, *replaces),
        Ask::Remove { node_id, force } => Plan::new(view, waited, *force).remove(*node_id, begun),
    }
}

fn add(view: &View, peer: &Peer) -> Step {
    let known = view.peers.iter();
    let mut known = known.filter(|(_, known)| known.incarnation == peer.incarnation);
    if let Some((id, _)) = known.next() {
        return Step::Done(*id);
    }
    // A learner of this name had its directory emptied before it ever got a vote.
    let voters = view.voters();
    let former = view.peers.iter();
    let former = former.filter(|(id, known)| known.name == peer.name && !voters.contains(id));
    let former: BTreeSet<u64> = former.map(|(id, _)| *id).collect();
    if former.is_empty() {
        Step::TakeIn(peer.clone())
    } else {
        Step::DropLearners(former)
    }
}

struct Plan<'a> {
    view: &'a View,
    voters: BTreeSet<u64>,
    waited: Duration,
    force: bool,
}

impl<'a> Plan<'a> {
    fn new(view: &'a View, waited: Duration, force: bool) -> Self {
        Self {
            view,
            voters: view.voters(),
            waited,
            force,
        }
    }

    fn promote(&self, node_id: u64, replaces: Option<u64>) -> Step {
        let view = self.view;
        let Some(peer) = view.peers.get(&node_id) else {
            return Step::refuse(format!("node {node_id} is no member"));
        };
        let votes = self.voters.contains(&node_id);
        let replaced = match replaces {
            Some(same) if same == node_id => {
                return Step::refuse(format!("node {node_id} cannot replace itself"));
            }
            Some(replaced) if view.peers.contains_key(&replaced) => Some(replaced),
            // A repetition of a change that was finished.
            Some(_) if votes => None,
            Some(replaced) => {
                return Step::refuse(format!("node {replaced}, to be replaced, is no member"));
            }
            None => {
                let same_name = |id: &&u64| {
                    **id != node_id && view.peers.get(id).is_some_and(|p| p.name == peer.name)
                };
                self.voters.iter().find(same_name).copied()
            }
        };
        let Some(replaced) = replaced else {
            if votes {
                return Step::Done(node_id);
            }
            return self.give_vote(node_id, None);
        };
        if votes && !self.voters.contains(&replaced) {
            return Step::DropLearners(BTreeSet::from([replaced]));
        }
        self.give_vote(node_id, Some(replaced))
    }

    fn give_vote(&self, node_id: u64, replaced: Option<u64>) -> Step {
        let view = self.view;
        if !self.force && !view.is_live(node_id) {
            return self.refuse_in_time(format!(
                "{} has not answered this leader for {} ms; start it, or promote it with --force",
                view.called(node_id),
                view.live_within.as_millis()
            ));
        }
        if let Some(known) = view.below_level(node_id) {
            return self.refuse_in_time(format!(
                "{} has announced level {known}, and the cluster is at level {}: it would stop at \
                 the first entry that it does not know; upgrade it first",
                view.called(node_id),
                view.level
            ));
        }
        // Also by force: as a member it would stop.
        if view.has_open_port(node_id) {
            return self.refuse_in_time(format!(
                "rights are enforced, and the peer port of {} is not known to be authenticated: start \
                 it with --cluster-secret-file, or with certificates and --peer-tls-name, and \
                 without --peer-tls-mode permissive",
                view.called(node_id)
            ));
        }
        if !self.force && !view.has_log(node_id) {
            let has = view.matched(node_id).unwrap_or(0);
            return Step::Wait(format!(
                "{} has not caught up: it has {has} of {} entries",
                view.called(node_id),
                view.last
            ));
        }
        let mut voters = self.voters.clone();
        voters.insert(node_id);
        if let Some(replaced) = replaced {
            voters.remove(&replaced);
        }
        self.set_voters(voters)
    }

    fn remove(&self, node_id: u64, begun: bool) -> Step {
        let view = self.view;
        if !view.peers.contains_key(&node_id) {
            return if begun {
                Step::Done(node_id)
            } else {
                Step::refuse(format!("node {node_id} is no member"))
            };
        }
        if !self.voters.contains(&node_id) {
            return Step::DropLearners(BTreeSet::from([node_id]));
        }
        if self.voters.len() == 1 {
            return Step::refuse(format!("{} is the last voter", view.called(node_id)));
        }
        let settled_after = view.live_within * SETTLED_TIMES;
        // A leader that is to go hands over at once: the next one counts from its election.
        let waits = node_id != view.me && view.age < settled_after;
        if !self.force && waits {
            return Step::Wait(format!(
                "these voters have stood for {} ms, and a voter is removed after {} ms at the \
                 earliest; retry, or remove it with --force",
                view.age.as_millis(),
                settled_after.as_millis()
            ));
        }
        let mut voters = self.voters.clone();
        voters.remove(&node_id);
        self.set_voters(voters)
    }

    fn set_voters(&self, voters: BTreeSet<u64>) -> Step {
        let view = self.view;
        if !self.force && !view.is_live_quorum(&voters) {
            return self.refuse_in_time(format!(
                "the {} voters after this change would have no live majority, and the cluster \
                 would stand still: {} have not answered for {} ms; start them first, remove them \
                 first, or repeat this with --force",
                voters.len(),
                view.silent(&voters),
                view.live_within.as_millis()
            ));
        }
        // A leader that lost its vote would never hear that it was removed.
        if !voters.contains(&view.me) {
            return Step::HandOver;
        }
        Step::SetVoters(voters)
    }

    /// A new leader, or one that was paused, has heard no node yet: what is wrong now may be right
    /// in a moment.
    fn refuse_in_time(&self, why: String) -> Step {
        if self.waited < self.view.live_within {
            Step::Wait(why)
        } else {
            Step::Refuse(why)
        }
    }
}

/// The voter to hand leadership to: live, with the log, if possible with room for more of it, and
/// the furthest ahead; `to` if it is live, has the log and is not 0.
pub(crate) fn successor(view: &View, to: u64) -> Result<u64, MembershipError> {
    let voters = view.voters();
    if to == view.me {
        return Ok(to);
    }
    if to == 0 {
        let others = voters.iter().filter(|id| **id != view.me);
        let able = others.filter(|id| view.is_live(**id) && view.has_log(**id));
        let best = able.max_by_key(|id| (view.has_room(**id), view.matched(**id)));
        return best.copied().ok_or_else(|| {
            if voters.len() > 1 {
                MembershipError::not_done("no other voter is live and has caught up")
            } else {
                MembershipError::refused("there is no other voter")
            }
        });
    }
    if !voters.contains(&to) {
        let why = format!("{} is no voter", view.called(to));
        return Err(MembershipError::refused(why));
    }
    // A hand-over to a node that lacks entries costs a whole election.
    if !view.is_live(to) || !view.has_log(to) {
        let why = format!("{} is not live or has not caught up", view.called(to));
        return Err(MembershipError::not_done(why));
    }
    Ok(to)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
