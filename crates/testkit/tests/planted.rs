//! Plants bugs into true histories and requires that the invariants notice each of them: a checker
//! that never fails says nothing.
#![allow(clippy::unwrap_used)]

mod bugs;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use ringfence_core::StateMachine;
use ringfence_testkit::arbitrary::{History, extreme_histories, histories};
use ringfence_testkit::invariants::{Checkers, Step, equal_states};
use ringfence_testkit::run::steps;

use bugs::{BUGS, Bug};

/// How often each bug is planted.
const PLANTED: usize = 5;
/// How many histories are searched for places to plant it.
const HISTORIES: usize = 1_200;

/// Two histories in three keep to moderate numbers.
fn random_histories() -> impl Iterator<Item = History> {
    let mut runner = TestRunner::deterministic();
    (0..HISTORIES).map(move |at| {
        if at % 3 == 2 {
            let extreme = extreme_histories(30).new_tree(&mut runner);
            return extreme.unwrap().current();
        }
        histories(60).new_tree(&mut runner).unwrap().current()
    })
}

#[test]
fn each_planted_bug_is_noticed() {
    let mut planted = vec![0; BUGS.len()];
    for history in random_histories() {
        if planted.iter().all(|&times| times == PLANTED) {
            break;
        }
        let steps = steps(&history);
        for (bug, times) in BUGS.iter().zip(&mut planted) {
            if *times < PLANTED && plant_once(bug, &steps) {
                *times += 1;
            }
        }
    }
    for ((bug, ..), times) in BUGS.iter().zip(planted) {
        assert_eq!(times, PLANTED, "{bug} found too few places");
    }
}

/// Plants a bug at the first place that there is, and requires that it is noticed; `false` if
/// there is none.
fn plant_once((bug, invariant, plant): &Bug, steps: &[Step]) -> bool {
    let mut checkers = Checkers::default();
    for step in steps {
        let mut bad = step.clone();
        if plant(&mut bad) {
            let found = checkers.check_all(&bad);
            let noticed = found
                .iter()
                .any(|violation| violation.invariant == *invariant);
            assert!(noticed, "{bug}: not noticed in {bad:#?}, but {found:?}");
            return true;
        }
        checkers.check(step).unwrap();
    }
    false
}

#[test]
fn a_snapshot_that_lost_a_record_is_noticed() {
    let mut noticed = 0;
    for history in random_histories().take(20) {
        let mut machine = StateMachine::new();
        for step in steps(&history) {
            machine.apply(&step.entry, &mut Vec::new());
        }
        let all: Vec<_> = machine.records().collect();
        for lost in 1..all.len() {
            let mut some = all.clone();
            some.remove(lost);
            if let Ok(other) = StateMachine::restore(some) {
                assert!(equal_states::check(&machine, &other).is_err());
            }
            noticed += 1;
        }
    }
    assert!(noticed > 50, "only {noticed} records were lost");
}

/// Without this the rest could hold for nothing.
#[test]
fn random_histories_reach_every_kind_of_event() {
    let mut wanted = vec![
        "Granted",
        "Released",
        "Expired",
        "Closed",
        "Revoked",
        "Evicted",
        "Transferred",
        "TimedOut",
        "SessionEnded",
        "Removed",
        "Voided",
        "Settled",
        "Waiting",
        "Forgotten",
        "NotReady",
        "AlreadyFormed",
        "StaleSettings",
        "InvalidTtl",
        "InvalidWait",
        "OpenTooOld",
        "OpenIdUsed",
        "SessionExpired",
        "WrongSecret",
        "StaleRequest",
        "RequestMismatch",
        "RequestVoided",
        "TooManyUnconfirmed",
        "mine: true",
        "mine: false",
        "LockDelay",
        "Revoking",
        "QuietTime",
        "StaleToken",
        "NotHolder",
        "NotWaiting",
        "SessionLeases",
        "LeaseWaiters",
        "Leases(",
        "Sessions(",
        "LostGrant",
        "repeated: true",
        "NodeId",
        "why: Refused",
        "AccessChanged",
        "PermissionDenied",
        "Banned",
        "TokenRevoked",
        "OtherPrincipal",
        "StaleAccess",
        "WouldLockOut",
        "InvalidAccess(LevelTooLow)",
        "InvalidAccess(OtherCluster)",
        "InvalidAccess(Changes)",
        "InvalidAccess(BanLocal)",
        "InvalidAccess(TokenPrincipal)",
        "NamesMissing",
        "NamesNotTaken",
        "NoNamespace",
    ];
    for history in random_histories() {
        for step in steps(&history) {
            let told = format!("{:?} {:?}", step.outcome, step.events);
            wanted.retain(|word| !told.contains(word));
        }
        if wanted.is_empty() {
            return;
        }
    }
    panic!("no history has {wanted:?}");
}
