//! What each node is, reported to the history whenever it changes.

use ringfence_check::history::{NodeSeen, NodeState, Record};

use crate::clock::now_ns;
use crate::stage::Stage;

/// What was reported last of each node, and the leaders seen.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    told: Vec<Option<(NodeState, u64)>>,
    leader: Option<(usize, u64)>,
    /// Leaders that followed another.
    pub(crate) changes: u64,
}

impl Roles {
    /// Looks at all nodes and tells what has changed.
    pub(crate) fn look(&mut self, stage: &Stage) {
        let views = stage.views.all();
        self.told.resize(stage.nodes.len(), None);
        for ((node, view), told) in stage.nodes.iter().zip(&views).zip(&mut self.told) {
            let state = match (node.runs(), node.paused, view.is_fresh()) {
                (false, ..) => NodeState::Down,
                (_, true, _) => NodeState::Paused,
                // What it was last, until it answers.
                (.., false) => match told {
                    Some((state, _)) if *state != NodeState::Down => *state,
                    _ => NodeState::Candidate,
                },
                _ if view.leads => NodeState::Leader,
                _ if view.led => NodeState::Follower,
                _ => NodeState::Candidate,
            };
            let now = Some((state, view.term));
            // A spare node that never ran is not counted.
            let never_ran = told.is_none() && state == NodeState::Down;
            if *told != now && !never_ran {
                *told = now;
                put(stage, &node.name, state, view.term);
            }
        }
        let leader = stage.views.leader();
        if let Some(now) = leader
            && self.leader.is_none_or(|before| before.1 < now.1)
        {
            self.changes += u64::from(self.leader.is_some());
            self.leader = leader;
        }
    }
}

fn put(stage: &Stage, node: &str, state: NodeState, term: u64) {
    let seen = NodeSeen {
        node: node.to_owned(),
        t: now_ns(),
        state,
        term: (term != 0).then_some(term),
    };
    let tally = stage.tally.lock();
    tally
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .take(Record::Node(seen));
}
