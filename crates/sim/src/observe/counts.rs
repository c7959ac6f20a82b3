//! How often things happened in a run.

use std::collections::BTreeMap;

use ringfence_check::history;
use ringfence_core::Event;

use super::Observation;

/// How often things happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries in the log.
    pub entries: u64,
    /// Requests of clients, each try counted.
    pub asked: u64,
    /// Answers of applied entries and reads.
    pub answered: u64,
    /// Answers that left it open what became of a request.
    pub unknown: u64,
    /// Answers that said "not done".
    pub not_done: u64,
    /// Grants.
    pub grants: u64,
    /// Sessions that ran out of time.
    pub expiries: u64,
    /// Times at which a node became leader.
    pub leaders: u64,
    /// Snapshots that were taken up.
    pub snapshots: u64,
    /// Visits to guarded stores that were admitted, and those that were refused.
    pub admitted: u64,
    /// See `admitted`.
    pub refused: u64,
    /// Beliefs.
    pub beliefs: u64,
    /// Leases that were held sealed at all their guards.
    pub sealed: u64,
    /// Leases that were held although guards were unsealed.
    pub held_unsealed: u64,
    /// Stores that were set back to an older copy.
    pub stores_restored: u64,
    /// Faults that were made, by the row of the matrix.
    pub faults: BTreeMap<&'static str, u64>,
    /// Of those that need more than their time, how many came about, by the row.
    pub took: BTreeMap<&'static str, u64>,
    /// Cases of rights that came about, by what they are.
    pub cases: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a case.
    pub(super) fn case(&mut self, what: &'static str) {
        *self.cases.entry(what).or_default() += 1;
    }

    /// Counts something.
    pub(super) fn take(&mut self, seen: &Observation) {
        let counts = self;
        match seen {
            Observation::Applied(applied) if applied.first => {
                counts.entries += 1;
                for event in &applied.events {
                    match event {
                        Event::Granted(_) => counts.grants += 1,
                        Event::SessionEnded {
                            cause: ringfence_core::SessionEnd::Expired,
                            ..
                        } => counts.expiries += 1,
                        _ => {}
                    }
                }
            }
            Observation::Asked(_) | Observation::KeepAliveAsked { .. } => counts.asked += 1,
            Observation::Answered(answered) => match answered.outcome {
                history::Outcome::Unknown { .. } => counts.unknown += 1,
                history::Outcome::NotDone { .. } => counts.not_done += 1,
                _ => counts.answered += 1,
            },
            Observation::Leads { .. } => counts.leaders += 1,
            Observation::Installed { .. } => counts.snapshots += 1,
            Observation::Guard(visit) if visit.admitted.is_ok() => counts.admitted += 1,
            Observation::Guard(_) => counts.refused += 1,
            Observation::BeliefBegan(_) => counts.beliefs += 1,
            Observation::Sealed(sealed) if sealed.unsealed.is_empty() => counts.sealed += 1,
            Observation::Sealed(_) => counts.held_unsealed += 1,
            Observation::StoreRestored(_) => counts.stores_restored += 1,
            Observation::FaultBegan { fault, .. } => {
                *counts.faults.entry(fault.row()).or_default() += 1;
            }
            Observation::Took { row } => *counts.took.entry(row).or_default() += 1,
            Observation::Case(what) => counts.case(what),
            _ => {}
        }
    }
}
