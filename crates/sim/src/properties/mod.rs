//! The promises of the contract as state machines over what a run shows, one promise a file.
//!
//! | id | in one sentence | file |
//! |----|-----------------|------|
//! | I1 | in commit order, admitted tokens never fall, and no update is lost | `admitted_tokens_rise.rs` |
//! | I2 | tokens are unique and rise | `tokens_rise.rs` |
//! | I3 | a lease has one holder at each log index | `one_holder.rs` |
//! | I4 | no two clients believe in one lease at one time | `beliefs_do_not_overlap.rs` |
//! | I5 | nothing acknowledged is lost, no request takes effect twice | `acknowledged_is_kept.rs` |
//! | I6 | reads are linearizable | `reads_are_current.rs` |
//! | I7 | no session ends early | `no_early_end.rs` |
//! | I8 | a silent session ends within its TTL and 1 s in one term | `silent_sessions_end.rs` |
//! | I9 | a silent session ends within two TTLs and 1 s whatever leaders do | `silent_sessions_end.rs` |
//! | I10 | an ended session never comes back | `no_resurrection.rs` |
//! | I11 | only the holding session gives a grant up, with its current token | `only_the_holder.rs` |
//! | I12 | a queue is served in order | `first_in_first_out.rs` |
//! | I13 | no lost wake-up, no orphan grant, no ghost waiter | `nobody_is_forgotten.rs` |
//! | I14 | watches tell everything, in order, once | `watches_tell_all.rs` |
//! | I15 | equal index, equal state | `equal_states.rs` |
//! | I16 | no rollback lowers or repeats a token | `tokens_survive.rs` |
//! | I17 | one leader a term, one entry an index | `one_log.rs` |
//! | I18 | after faults stop, service returns | `service_returns.rs` |
//! | I19 | "not done" is never followed by the effect | `not_done_stays_undone.rs` |
//! | I20 | every table keeps its limit | `limits_are_kept.rs` |
//! | I21 | a request number is remembered until it is confirmed | `numbers_are_remembered.rs` |
//! | I22 | cluster time moves with true time | `cluster_time_is_true.rs` |
//! | I23 | no guard refuses the current grant once it has advanced | `guards_admit_the_holder.rs` |
//! | I24 | a grant reported lost is never again reported held | `loss_is_final.rs` |
//! | I25 | a lease is reported held when its guards have raised their marks | `sealed_guards_are_raised.rs` |
//! | I26 | from then on a sealed guard admits no smaller token | `seals_hold.rs` |
//! | I29 | every change of the members ends, and all members know the same voters | `members_settle.rs` |
//! | I30 | a node id names one data directory, for ever | `node_ids_are_unique.rs` |
//! | I31 | no file is left that no rule names | `no_file_is_left.rs` |
//! | I32 | every voter is ready, or has said why it does not run | `voters_are_ready.rs` |
//! | I33 | a node whose log is gone does not start | `lost_logs_are_noticed.rs` |
//! | I34 | a leader whose disk hangs gives way | `hung_leaders_give_way.rs` |
//! | I35 | a removal leaves a live majority | `a_live_majority_is_left.rs` |
//! | I36 | a node ends on its own for a failed disk or its removal alone | `ends_have_a_reason.rs` |
//! | I37 | nothing is granted to a principal that may not have it, and no waiter that may is refused | `every_entry.rs` |
//! | I38 | nothing is done for a banned principal | `every_entry.rs` |
//! | I39 | what is refused for its caller changes nothing | `every_entry.rs` |
//! | I40 | a session is its owner's | `every_entry.rs` |
//! | I41 | a change of rights ends nothing | `every_entry.rs` |
//! | I42 | only its owner keeps a session alive | `its_owner_keeps_alive.rs` |
//! | I43 | what operators do is allowed to them | `every_entry.rs` |
//! | I44 | what an operator changes is listed among the acts, and what changes nothing is not | `every_entry.rs` |
//! | E1 | an elector is granted no second term inside its first one | `elections_keep_their_terms.rs`, `every_entry.rs` |
//! | E2 | only the process that holds a term of a Lease object renews and releases it | `every_entry.rs` |
//! | E3 | versions of objects neither fall nor repeat, and a resumed watch ends in the listed state | `objects_are_watched_whole.rs`, `every_entry.rs` |
//!
//! I27 and I28 are promises about what does not exist yet: holders that yield.
//!
//! `every_entry.rs` runs the checkers of single entries, which know the state's records, on the log.

mod a_live_majority_is_left;
mod acknowledged_is_kept;
mod admitted_tokens_rise;
mod beliefs_do_not_overlap;
mod cluster_time_is_true;
mod elections_keep_their_terms;
mod ends_have_a_reason;
mod equal_states;
mod every_entry;
mod first_in_first_out;
mod guards_admit_the_holder;
mod hung_leaders_give_way;
mod its_owner_keeps_alive;
mod limits_are_kept;
mod loss_is_final;
mod lost_logs_are_noticed;
mod members_settle;
mod no_early_end;
mod no_file_is_left;
mod no_resurrection;
mod nobody_is_forgotten;
mod node_ids_are_unique;
mod not_done_stays_undone;
mod numbers_are_remembered;
mod objects_are_watched_whole;
mod one_holder;
mod one_log;
mod only_the_holder;
mod reads_are_current;
#[cfg(test)]
mod scene;
mod sealed_guards_are_raised;
mod seals_hold;
mod service_returns;
mod settled;
mod silent_sessions_end;
mod tokens_rise;
mod tokens_survive;
mod track;
mod voters_are_ready;
mod watches_tell_all;

use std::time::Duration;

use crate::observe::{At, Observation, Violation};

/// A promise, checked over what a run shows.
pub trait Property: Send {
    /// Takes what happened at `at`.
    ///
    /// # Errors
    /// [`Violation`] if it cannot have happened.
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation>;

    /// The run is over.
    ///
    /// # Errors
    /// [`Violation`] if something is missing that should have happened by now.
    fn end(&mut self, at: At) -> Result<(), Violation> {
        let _ = at;
        Ok(())
    }

    /// Whether it holds across a rollback of all disks. What was acknowledged is gone then, and so
    /// is most of what the contract promises.
    fn outlives_a_rollback(&self) -> bool {
        false
    }

    /// Whether it holds across a restore from a backup, which keeps a quiet time.
    fn outlives_a_restore(&self) -> bool {
        self.outlives_a_rollback()
    }
}

/// What a run's plan relaxes, as far as the contract says that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How far the rate of any node's clock is from true time at most, in parts per million.
    pub node_ppm: u32,
    /// How far the rate of any client's clock is from true time at most, in parts per million.
    pub client_ppm: u32,
    /// The longest election timeout of the nodes.
    pub election_max: Duration,
    /// How long what a healthy network carries is under way, there and back, at most.
    pub round_trip: Duration,
}

/// The rate error that the contract allows to every clock: 1 %.
pub const PPM_MAX: u32 = 10_000;

impl Bounds {
    /// Whether beliefs are promised not to overlap.
    #[must_use]
    pub fn beliefs_are_exclusive(&self) -> bool {
        self.node_ppm <= PPM_MAX && self.client_ppm <= PPM_MAX
    }

    /// The least true time in which the fastest clock of a node shows `time`.
    #[must_use]
    pub fn least_true(&self, time: Duration) -> Duration {
        time.mul_f64(1e6 / (1e6 + f64::from(self.node_ppm)))
    }

    /// The most that the fastest clock of a node shows after the true time `time`.
    #[must_use]
    pub fn most_shown(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + f64::from(self.node_ppm) / 1e6)
    }

    /// The least that the slowest clock of a node shows after the true time `time`.
    #[must_use]
    pub fn least_shown(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 - f64::from(self.node_ppm) / 1e6)
    }
}

/// All promises.
pub struct Suite {
    properties: Vec<Box<dyn Property>>,
}

impl Suite {
    /// The promises under these bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let properties: Vec<Box<dyn Property>> = vec![
            Box::<admitted_tokens_rise::AdmittedTokensRise>::default(),
            Box::<tokens_rise::TokensRise>::default(),
            Box::<one_holder::OneHolder>::default(),
            Box::new(beliefs_do_not_overlap::Exclusive::new(bounds)),
            Box::<acknowledged_is_kept::AcknowledgedIsKept>::default(),
            Box::<reads_are_current::ReadsAreCurrent>::default(),
            Box::new(no_early_end::NoEarlyEnd::new(bounds)),
            Box::new(silent_sessions_end::SilentSessionsEnd::within_one_ttl()),
            Box::new(silent_sessions_end::SilentSessionsEnd::within_two_ttls()),
            Box::<no_resurrection::NoResurrection>::default(),
            Box::<only_the_holder::OnlyTheHolder>::default(),
            Box::<first_in_first_out::FirstInFirstOut>::default(),
            Box::<nobody_is_forgotten::NobodyIsForgotten>::default(),
            Box::<watches_tell_all::WatchesTellAll>::default(),
            Box::<equal_states::EqualStates>::default(),
            Box::<tokens_survive::TokensSurvive>::default(),
            Box::<one_log::OneLog>::default(),
            Box::new(service_returns::ServiceReturns::new(bounds)),
            Box::<not_done_stays_undone::NotDoneStaysUndone>::default(),
            Box::<limits_are_kept::LimitsAreKept>::default(),
            Box::<numbers_are_remembered::NumbersAreRemembered>::default(),
            Box::new(cluster_time_is_true::ClusterTimeIsTrue::new(bounds)),
            Box::<guards_admit_the_holder::GuardsAdmitTheHolder>::default(),
            Box::<loss_is_final::LossIsFinal>::default(),
            Box::<sealed_guards_are_raised::SealedGuardsAreRaised>::default(),
            Box::<seals_hold::SealsHold>::default(),
            Box::<members_settle::MembersSettle>::default(),
            Box::<node_ids_are_unique::NodeIdsAreUnique>::default(),
            Box::<no_file_is_left::NoFileIsLeft>::default(),
            Box::<voters_are_ready::VotersAreReady>::default(),
            Box::<lost_logs_are_noticed::LostLogsAreNoticed>::default(),
            Box::<hung_leaders_give_way::HungLeadersGiveWay>::default(),
            Box::<a_live_majority_is_left::ALiveMajorityIsLeft>::default(),
            Box::<ends_have_a_reason::EndsHaveAReason>::default(),
            Box::<its_owner_keeps_alive::ItsOwnerKeepsAlive>::default(),
            Box::<elections_keep_their_terms::ElectionsKeepTheirTerms>::default(),
            Box::<objects_are_watched_whole::ObjectsAreWatchedWhole>::default(),
            Box::<every_entry::EveryEntry>::default(),
        ];
        Self { properties }
    }

    /// Shows something to all of them.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::RolledBack => self
                .properties
                .retain(|property| property.outlives_a_rollback()),
            Observation::Restored => self
                .properties
                .retain(|property| property.outlives_a_restore()),
            _ => {}
        }
        self.properties
            .iter_mut()
            .try_for_each(|property| property.see(at, seen))
    }

    /// The run is over.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn end(&mut self, at: At) -> Result<(), Violation> {
        self.properties
            .iter_mut()
            .try_for_each(|property| property.end(at))
    }
}
