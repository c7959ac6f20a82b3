//! What must hold after each entry, one property a file. None looks into the state machine: each
//! sees what an entry said, what was answered and which events came of it, and the records of the
//! state before and after.
//!
//! | id  | in one sentence | file |
//! |-----|-----------------|------|
//! | I2  | every token is greater than all granted before | `tokens_increase.rs` |
//! | I3  | a lease has at most one holder | `one_holder.rs` |
//! | I7  | no session runs out of time early | `nobody_ends_early.rs` |
//! | I8  | a silent session ends within its TTL while the term does not change | `the_silent_end.rs` |
//! | I9  | a silent session ends within two TTLs whatever leaders do | `the_silent_end.rs` |
//! | I10 | an ended session never comes back | `no_resurrection.rs` |
//! | I11 | only the holding session gives a grant up, with its current token | `only_the_holder_releases.rs` |
//! | I12 | a queue is served in the order of its places | `first_in_first_out.rs` |
//! | I13 | no wake-up is lost, no grant is without a session, no wait is a ghost | `no_lost_wake_up.rs` |
//! | I15 | equal entries make equal states, and a restored one is the same | `equal_states.rs` |
//! | I16 | neither the counter nor a floor ever falls | `counters_never_fall.rs` |
//! | I20 | every table keeps its limit | `limits_are_kept.rs` |
//! | I21 | a request number is remembered until its client confirms it | `numbers_are_remembered.rs` |
//! | I24 | a grant that was reported as ended is never reported as held again | `the_ended_stay_ended.rs` |
//! | I37 | no lease is granted to a principal that may not have it then, once rights bind | `only_the_entitled.rs` |
//! | I38 | nothing is done for a banned principal, and its sessions are not renewed | `the_banned.rs` |
//! | I39 | what is refused for its caller changes nothing | `the_refused.rs` |
//! | I40 | a session is its owner's for life | `its_owners.rs` |
//! | I41 | a change of rights ends nothing | `rights_end_nothing.rs` |
//! | I43 | what operators do is allowed to them | `operators_may.rs` |
//! | I44 | what an operator changes is listed among the acts, and what changes nothing is not | `acts_are_listed.rs` |
//! | E1 | a candidate that lost a term is granted no other one before it noticed | `no_second_term.rs` |
//! | E2 | only the process that holds a term renews and releases it | `terms_are_their_callers.rs` |
//! | E3 | versions rise, and a resumed watch ends in the listed state | `versions_rise.rs` |

mod acts_are_listed;
mod counters_never_fall;
pub mod equal_states;
mod first_in_first_out;
mod its_owners;
mod limits_are_kept;
mod no_lost_wake_up;
mod no_resurrection;
mod no_second_term;
mod nobody_ends_early;
mod numbers_are_remembered;
mod one_holder;
mod only_the_entitled;
mod only_the_holder_releases;
mod operators_may;
mod rights_end_nothing;
mod signs_of_life;
mod terms_are_their_callers;
mod the_banned;
mod the_ended_stay_ended;
mod the_refused;
mod the_silent_end;
mod tokens_increase;
mod versions_rise;

pub use only_the_holder_releases::names_pod;

use std::fmt;
use std::sync::Arc;

use ringfence_core::{Acquired, Entry, Event, FencingToken, Opened, Outcome};

use crate::view::View;

/// What one entry did, as a checker sees it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The state before.
    pub before: Arc<View>,
    /// What was to be done.
    pub entry: Entry,
    /// What was answered.
    pub outcome: Outcome,
    /// What changed.
    pub events: Vec<Event>,
    /// The state after.
    pub after: Arc<View>,
}

impl Step {
    /// The token that the answer says is held now, if it says so.
    #[must_use]
    pub fn told_held(&self) -> Option<FencingToken> {
        match &self.outcome {
            Outcome::Acquired(Acquired::Granted(granted))
            | Outcome::Opened(Opened {
                acquired: Some(Acquired::Granted(granted)),
                ..
            }) => Some(granted.token),
            Outcome::Cancelled(ringfence_core::Cancelled::Granted { token, .. }) => Some(*token),
            _ => None,
        }
    }
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its id.
    pub invariant: &'static str,
    /// The entry after which it does not hold.
    pub index: u64,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            invariant,
            index,
            what,
        } = self;
        write!(f, "{invariant} does not hold after entry {index}: {what}")
    }
}

impl std::error::Error for Violation {}

/// A property of all histories, checked entry by entry; it may remember what it saw.
trait Invariant: Send {
    /// # Errors
    /// What was found, if the property does not hold after this step.
    fn check(&mut self, step: &Step) -> Result<(), String>;
}

/// All invariants, following one history from its first entry on.
pub struct Checkers(Vec<(&'static str, Box<dyn Invariant>)>);

impl Default for Checkers {
    fn default() -> Self {
        Self(vec![
            ("I2", Box::<tokens_increase::TokensIncrease>::default()),
            ("I3", Box::<one_holder::OneHolder>::default()),
            ("I7", Box::<nobody_ends_early::NobodyEndsEarly>::default()),
            ("I8", Box::<the_silent_end::WithinOneTtl>::default()),
            ("I9", Box::<the_silent_end::WithinTwoTtls>::default()),
            ("I10", Box::<no_resurrection::NoResurrection>::default()),
            ("I11", Box::new(only_the_holder_releases::OnlyTheHolder)),
            ("I12", Box::new(first_in_first_out::FirstInFirstOut)),
            ("I13", Box::new(no_lost_wake_up::NoLostWakeUp)),
            ("I16", Box::new(counters_never_fall::CountersNeverFall)),
            ("I20", Box::new(limits_are_kept::LimitsAreKept)),
            ("I21", Box::new(numbers_are_remembered::Remembered)),
            (
                "I24",
                Box::<the_ended_stay_ended::EndedStayEnded>::default(),
            ),
            ("I37", Box::new(only_the_entitled::OnlyTheEntitled)),
            ("I38", Box::new(the_banned::NothingForTheBanned)),
            ("I39", Box::new(the_refused::TheRefused)),
            ("I40", Box::new(its_owners::ItsOwners)),
            ("I41", Box::new(rights_end_nothing::RightsEndNothing)),
            ("I43", Box::new(operators_may::OperatorsMay)),
            ("I44", Box::new(acts_are_listed::ActsAreListed)),
            ("E1", Box::<no_second_term::NoSecondTerm>::default()),
            (
                "E2",
                Box::new(terms_are_their_callers::TermsAreTheirCallers),
            ),
            ("E3", Box::<versions_rise::VersionsRise>::default()),
        ])
    }
}

impl Checkers {
    /// Checks everything after one more entry.
    ///
    /// # Errors
    /// The first invariant that does not hold, in the order of their ids.
    pub fn check(&mut self, step: &Step) -> Result<(), Violation> {
        match self.check_all(step).into_iter().next() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// Checks everything after one more entry; all that does not hold.
    pub fn check_all(&mut self, step: &Step) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (invariant, checker) in &mut self.0 {
            if let Err(what) = checker.check(step) {
                violations.push(Violation {
                    invariant,
                    index: step.entry.index,
                    what,
                });
            }
        }
        violations
    }
}
