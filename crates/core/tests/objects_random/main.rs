//! Random histories of Lease objects: electors that sleep and wake into their old belief, other
//! processes that use their names, native clients, operators, changes of the mode, new terms and
//! snapshots. What must hold is said in `bench`, without any knowledge of how it is kept.
//!
//! `PROPTEST_CASES` sets the number of histories.
#![allow(clippy::unwrap_used)]

mod bench;
mod electors;
mod play;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ringfence_core::Mode;

/// A step of a history. Numbers choose among what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Milliseconds pass.
    Pass(u64),
    /// An elector does what its loop does next; with `old`, on the version that it saw last.
    Elector { who: usize, old: bool },
    /// Its process starts again.
    Restart(usize),
    /// Its loop ends, and it gives back what it may hold.
    GivesUp(usize),
    /// Another process writes, by its own name or that of an elector.
    Stranger {
        principal: usize,
        pod: usize,
        says: usize,
        name: usize,
        old: bool,
        new_term: bool,
    },
    /// Only metadata is written.
    Metadata { who: usize, byte: u8 },
    /// The object is deleted; with `revoke`, its holder's grant with it.
    Delete { who: usize, revoke: bool, now: bool },
    /// A native client acquires, with a wait or without one.
    Acquire {
        who: usize,
        name: usize,
        waits: bool,
    },
    /// It releases what it holds, or hands it over.
    Release { who: usize, hands_over: bool },
    /// An operator revokes the grant.
    Revoke { name: usize, now: bool },
    /// An operator ends the session of the holder.
    Evict { name: usize },
    /// Rights bind from now on, or no more.
    Mode(Mode),
    /// A principal may have so many sessions and leases.
    Limits { sessions: u64, leases: u64 },
    /// A new leader opens a term.
    Term,
    /// A second machine goes on from a snapshot.
    Snapshot,
    /// A watch that broke off is resumed.
    Watch,
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..electors::COUNT;
    let bit = any::<bool>;
    let mode = prop::sample::select(vec![Mode::Off, Mode::Permissive, Mode::Enforced]);
    let stranger = (0..5usize, 0..3usize, 0..7usize, 0..2usize, bit(), bit());
    prop_oneof![
        10 => (0..4_000u64).prop_map(Step::Pass),
        4 => (4_000..20_000u64).prop_map(Step::Pass),
        1 => (20_000..90_000u64).prop_map(Step::Pass),
        20 => (who(), prop::bool::weighted(0.2)).prop_map(|(who, old)| Step::Elector { who, old }),
        2 => who().prop_map(Step::Restart),
        2 => who().prop_map(Step::GivesUp),
        6 => stranger.prop_map(|(principal, pod, says, name, old, new_term)| Step::Stranger {
            principal, pod, says, name, old, new_term
        }),
        2 => (who(), any::<u8>()).prop_map(|(who, byte)| Step::Metadata { who, byte }),
        2 => (who(), bit(), bit()).prop_map(|(who, revoke, now)| Step::Delete { who, revoke, now }),
        3 => (0..2usize, 0..2usize, bit())
            .prop_map(|(who, name, waits)| Step::Acquire { who, name, waits }),
        2 => (0..2usize, bit()).prop_map(|(who, hands_over)| Step::Release { who, hands_over }),
        2 => (0..2usize, bit()).prop_map(|(name, now)| Step::Revoke { name, now }),
        1 => (0..2usize).prop_map(|name| Step::Evict { name }),
        2 => mode.prop_map(Step::Mode),
        1 => (1..12u64, 1..4u64).prop_map(|(sessions, leases)| Step::Limits { sessions, leases }),
        1 => Just(Step::Term),
        2 => Just(Step::Snapshot),
        2 => Just(Step::Watch),
    ]
}

fn config() -> ProptestConfig {
    let told = |variable| std::env::var_os(variable).is_some();
    let file = FileFailurePersistence::Direct("tests/objects_random.proptest-regressions");
    ProptestConfig {
        cases: match std::env::var("PROPTEST_CASES") {
            Ok(given) => given.parse().expect("PROPTEST_CASES is a number"),
            Err(_) => 300,
        },
        max_shrink_iters: match told("PROPTEST_MAX_SHRINK_ITERS") {
            true => ProptestConfig::default().max_shrink_iters,
            false => 5_000,
        },
        failure_persistence: match told("PROPTEST_DISABLE_FAILURE_PERSISTENCE") {
            true => None,
            false => Some(Box::new(file)),
        },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn objects_keep_their_rules(steps in vec(step(), 1..120)) {
        play::play(&steps);
    }
}
