//! What nodes tell.

use std::sync::Arc;

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_testkit::view::View;

use super::{COMPARED, Recorder};
use crate::listener::{End, Listener};
use crate::lock::lock;
use crate::observe::{Applied, Observation};
use crate::world::state_hash;

impl Listener for Recorder {
    fn applied(
        &self,
        node: usize,
        machine: &StateMachine,
        entry: &Entry,
        outcome: &Outcome,
        events: &[Event],
    ) {
        let first = lock(&self.inner.state).log.insert(entry.index);
        let looked_at = entry.index.is_multiple_of(COMPARED);
        self.see(Observation::Applied(Arc::new(Applied {
            node,
            first,
            entry: entry.clone(),
            outcome: outcome.clone(),
            events: events.to_vec(),
            digest: looked_at.then(|| state_hash(machine)),
            after: first.then(|| Arc::new(View::of(machine))),
        })));
    }

    fn skipped(&self, node: usize, _: &StateMachine, index: u64, term: u64) {
        self.see(Observation::Skipped { node, index, term });
    }

    fn installed(&self, node: usize, machine: &StateMachine, index: u64, term: u64) {
        let digest = state_hash(machine);
        self.see(Observation::Installed {
            node,
            index,
            term,
            digest,
        });
    }

    fn leads(&self, node: usize, term: u64) {
        self.see(Observation::Leads { node, term });
    }

    fn leads_no_more(&self, node: usize, term: u64) {
        self.see(Observation::LeadsNoMore { node, term });
    }

    fn started(&self, node: usize, _: u64) {
        self.see(Observation::Started { node });
    }

    fn ended(&self, node: usize, how: &End) {
        let how = how.clone();
        self.see(Observation::Ended { node, how });
    }
}
