//! The log of the cluster after a hunt: replayed on the state machine and on the model, with all
//! invariants after each entry, and what entries of hostile clients did.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::process::Command;
use std::sync::Arc;

use ringfence_check::log::{DumpReader, Logged};
use ringfence_check::{Recording, Report, witness};
use ringfence_core::{
    Command as Asked, EndCause, Event, Granted, Outcome, SessionEnd, StateMachine, Verb, WaitEnd,
};
use ringfence_model::Model;
use ringfence_proto::record::{RECORD_VERSION, encode_command, kind_of};
use ringfence_testkit::invariants::{Checkers, Step};
use ringfence_testkit::view::View;
use ringfence_tests::{Cluster, server};

use super::bandit::Bandit;
use super::figures::Figures;
use super::known::{HIDDEN, SILENT_IDENTITY};

/// The committed log of a stopped node, as `ringfence log dump` writes it.
pub(super) struct Dump(File);

impl Dump {
    /// Of this node.
    pub(super) fn of(cluster: &Cluster, at: usize) -> Self {
        let file = tempfile::tempfile().unwrap();
        let mut command = Command::new(server());
        command.args(["log", "dump", "--data-dir"]);
        command
            .arg(cluster.data_dir(at))
            .stdout(file.try_clone().unwrap());
        let status = command.status().unwrap();
        assert!(status.success(), "{command:?}: {status}");
        Self(file)
    }

    fn entries(&self) -> impl Iterator<Item = Logged> {
        let mut file = self.0.try_clone().unwrap();
        file.rewind().unwrap();
        let read = DumpReader::new(BufReader::with_capacity(1 << 20, file)).unwrap();
        read.map(Result::unwrap)
    }

    /// Holds what the honest saw against it.
    pub(super) fn witnessed(&self, recording: &Recording) -> Report {
        let entries = self.entries().map(Ok::<_, std::convert::Infallible>);
        witness::check(recording, entries).unwrap()
    }

    /// What leaders alone log stands there as leaders log it: one forming, one start of each term, and
    /// no end of a Pod.
    pub(super) fn is_only_leaders(&self, figures: &Figures) {
        let (mut forms, mut term) = (0, 0);
        for logged in self.entries() {
            let Some(entry) = logged.entry else { continue };
            let wrong = match &entry.command {
                Asked::Form(_) => {
                    forms += 1;
                    forms > 1
                }
                Asked::TermStart { .. } => entry.term <= std::mem::replace(&mut term, entry.term),
                Asked::RaiseLevel { level } => *level != RECORD_VERSION,
                Asked::PodEnded(_) | Asked::DrawNodeId => true,
                _ => false,
            };
            if wrong {
                figures.found(&format!("a forged entry is in the log: {entry:?}"));
            }
        }
    }

    /// Replays all of it. What the state machine answered is what the model answers, each invariant
    /// holds after each entry, and no entry of a hostile client does anything beyond its rules.
    pub(super) fn replay(&self, bandits: &[Bandit], figures: &Figures) -> u64 {
        let mut machine = StateMachine::new();
        let mut model = Model::new();
        let mut checkers = Checkers::default();
        let mut before = Arc::new(View::of(&machine));
        let mut count = 0;
        for logged in self.entries() {
            let Some(entry) = logged.entry else { continue };
            count += 1;
            let expected = model.apply(&entry);
            let mut events = Vec::new();
            let outcome = machine.apply(&entry, &mut events);
            if expected != (outcome.clone(), events.clone()) {
                let index = entry.index;
                figures.found(&format!("entry {index}: the model differs: {expected:?}"));
                return count;
            }
            let after = Arc::new(View::of(&machine));
            let step = Step {
                before,
                entry,
                outcome,
                events,
                after: Arc::clone(&after),
            };
            before = after;
            for violation in checkers.check_all(&step) {
                figures.found(&violation.to_string());
            }
            judge(&step, bandits, figures);
        }
        count
    }
}

/// Judges an entry, if a hostile client has asked for it.
fn judge(step: &Step, bandits: &[Bandit], figures: &Figures) {
    let Asked::Called(called) = &step.entry.command else {
        return;
    };
    let principal = &called.caller.principal;
    let Some(bandit) = bandits
        .iter()
        .find(|bandit| bandit.principal.as_ref() == Some(principal))
    else {
        return;
    };
    let kind = kind_of(&encode_command(&called.command));
    let kind = kind.map_or("unknown".to_owned(), |kind| format!("{kind:?}"));
    let refused = matches!(step.outcome, Outcome::Rejected(_));
    let came = if refused { "refused" } else { "done" };
    figures.count(&format!("logged of {}: {kind}", bandit.name), came);
    for event in &step.events {
        if !is_allowed(event, step, bandit) {
            let index = step.entry.index;
            figures.found(&format!("entry {index} of {}: {event:?}", bandit.name));
        }
    }
}

/// Whether an entry of this client may do this, or time does it.
fn is_allowed(event: &Event, step: &Step, bandit: &Bandit) -> bool {
    let own = |session| {
        let found = step.before.session(session).or(step.after.session(session));
        found.is_some_and(|found| found.owner == bandit.principal)
    };
    match event {
        Event::Granted(granted) => {
            bandit.may(Verb::Acquire, granted.name.as_str()) || came_by_time(step, granted)
        }
        Event::Ended {
            name,
            cause,
            session,
            ..
        } => {
            let silent = *cause == EndCause::Expired && has_been_silent(step, *session);
            silent || !name.as_str().contains(HIDDEN)
        }
        Event::WaitEnded {
            name, why, session, ..
        } => !name.as_str().contains(HIDDEN) || *why == WaitEnd::TimedOut || own(*session),
        Event::SessionOpened { session } => own(*session),
        Event::SessionEnded { session, cause, .. } => {
            // No session of the honest runs out of time during a hunt, but those that are silent so that
            // they do.
            let may_run_out = hostile(step, *session) || has_been_silent(step, *session);
            own(*session) && (*cause == SessionEnd::Expired || *cause == SessionEnd::Closed)
                || *cause == SessionEnd::Expired && may_run_out
        }
        _ => true,
    }
}

/// Whether a grant goes to who waited for it before the entry, of a lease that came free as time went on:
/// a block was over, or the holder's session ran out of time. Any entry may be the one that moves time.
fn came_by_time(step: &Step, granted: &Granted) -> bool {
    let Some(lease) = step.before.lease(&granted.name) else {
        return false;
    };
    let mut queue = lease.queue.iter();
    let waited =
        queue.any(|waiter| (waiter.session, waiter.request) == (granted.session, granted.request));
    let ran_out = step.events.iter().any(|event| {
        let Event::Ended { name, cause, .. } = event else {
            return false;
        };
        *name == granted.name && *cause == EndCause::Expired
    });
    waited && (lease.grant.is_none() || ran_out)
}

/// Whether it is a session that is never kept alive, and its time was over.
fn has_been_silent(step: &Step, session: ringfence_core::SessionId) -> bool {
    step.before.session(session).is_some_and(|found| {
        let over = found.seen.after(found.ttl) <= step.after.time();
        over && found.identity.as_str() == SILENT_IDENTITY
    })
}

/// Whether a session is a hostile client's: the honest have none that ends.
fn hostile(step: &Step, session: ringfence_core::SessionId) -> bool {
    let owner = step
        .before
        .session(session)
        .and_then(|found| found.owner.as_ref());
    owner.is_some_and(|owner| owner.as_str() == "token:raider")
}
