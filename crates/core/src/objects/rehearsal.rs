//! Rehearsals: what a write would be answered, judged by the code that carries it out.

use alloc::vec::Vec;

use crate::budget::Budget;
use crate::command::{Command, ObjectWrite};
use crate::deadlines::Deadlines;
use crate::id::{OpenId, SessionId};
use crate::machine::StateMachine;
use crate::outcome::{Outcome, Rejection};
use crate::ttls::Ttls;

impl StateMachine {
    /// What this write of an object would be answered as the next entry. Nothing changes: it is
    /// carried out on a copy that shares its memory with the state, which takes microseconds.
    #[must_use]
    pub fn rehearse_object_write(&self, command: &Command) -> Outcome {
        if !self.is_ready_for(command) {
            return Outcome::Rejected(Rejection::NotReady);
        }
        // A copy of all deadlines would take as long as there are sessions. Of them a write reads the
        // longest idle name alone, which makes room in a full table.
        let mut copy = Self {
            state: self.freeze(),
            deadlines: Deadlines::of_longest_idle(&self.deadlines),
            ttls: Ttls::default(),
            opens: self.open_of(command).into_iter().collect(),
            usages: self.usages.clone(),
            budget: Budget::new(),
            events: Vec::new(),
            freed: Vec::new(),
            caller: None,
            changed_nothing: false,
        };
        copy.judge_and_carry_out(command)
    }

    /// The session that was opened with the id of a write, if there is one.
    fn open_of(&self, command: &Command) -> Option<(OpenId, SessionId)> {
        let Command::WriteObject(write) = command.bare() else {
            return None;
        };
        let ObjectWrite::Put { spec, .. } = &write.write else {
            return None;
        };
        let open = spec.as_ref()?.open;
        Some((open, *self.opens.get(&open)?))
    }
}
