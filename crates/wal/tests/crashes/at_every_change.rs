//! A crash at every change that a long scenario makes to the disk, and again in the recovery.

use ringfence_wal::sim::{Crash, Fault, SimFs};

use crate::model::{State, Subject, disk, open};
use crate::scenario;

const STEPS: u64 = 70;

/// The kinds of crash tried at change `at`.
fn crashes(at: u64) -> [Crash; 6] {
    [
        Crash::ProcessOnly,
        Crash::LoseAll,
        Crash::Subset(at * 3),
        Crash::Subset(at * 3 + 1),
        Crash::Garble(at * 3),
        Crash::Garble(at * 3 + 1),
    ]
}

/// Runs the scenario until change `at` and returns the disk as it then is.
fn stopped_at(seed: u64, at: u64) -> (SimFs, Subject) {
    let fs = disk();
    fs.plant(Fault::Stop(at));
    let mut subject = Subject::new(&fs);
    scenario::run(&mut subject, seed, STEPS);
    (fs, subject)
}

fn changes_of(seed: u64) -> u64 {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    scenario::run(&mut subject, seed, STEPS);
    assert_eq!(
        subject.acknowledged(),
        subject.ops.len(),
        "nothing fails without a crash"
    );
    let names: Vec<String> = fs
        .paths()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert!(
        !names.contains(&"/log/0000000000000001.wal".to_owned()),
        "recycled: {names:?}"
    );
    fs.changes()
}

/// Goes on with the crashed disk as a process does that was merely killed, whose predecessor's
/// writes and renames are still only in the cache, and then loses power.
fn check_going_on_at_once(fs: &SimFs, context: &str) {
    let (mut resumed, _) = Subject::resume(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    resumed.append(8, vec![vec![8; 6000], vec![8; 6000]]);
    resumed.flush();
    assert_eq!(
        resumed.acknowledged(),
        2,
        "{context}: the log does not work"
    );
    let expected = resumed.state.clone();
    drop(resumed);

    fs.crash(Crash::LoseAll);
    let (_, found) = open(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(
        State::of(&found),
        expected,
        "{context}: an acknowledged write is lost"
    );
}

/// Opens the crashed disk, checks it, checks that what the open reported stays even if the power
/// fails at once, and that the log then works.
fn check_reopened(fs: &SimFs, subject: &Subject, context: &str) {
    check_going_on_at_once(&fs.fork(), context);
    let (writer, recovered) = open(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    subject.check(&State::default(), &recovered, context);
    drop(writer);

    fs.crash(Crash::LoseAll);
    let (mut resumed, again) = Subject::resume(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(
        State::of(&again),
        State::of(&recovered),
        "{context}: an open's report changed"
    );
    assert_eq!(
        again.committed, recovered.committed,
        "{context}: the mark changed"
    );
    assert_eq!(
        again.truncated_tail_bytes, 0,
        "{context}: the tail was cut twice"
    );

    resumed.append(9, vec![vec![9; 700], vec![9; 7000]]);
    resumed.vote(b"after the crash");
    resumed.flush();
    assert_eq!(
        resumed.acknowledged(),
        3,
        "{context}: the log does not work"
    );
    let expected = resumed.state.clone();
    drop(resumed);
    fs.crash(Crash::LoseAll);
    let (_, last) = open(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(
        State::of(&last),
        expected,
        "{context}: an acknowledged write is lost"
    );
}

#[test]
fn every_acknowledged_write_survives_a_crash_at_every_change() {
    // The second scenario, for other lengths and orders, with every kind of crash in turn.
    for (seed, kinds) in [(1, 6), (2, 1)] {
        for at in 0..changes_of(seed) {
            let (fs, subject) = stopped_at(seed, at);
            for crash in crashes(at)
                .into_iter()
                .cycle()
                .skip(at as usize % 6)
                .take(kinds)
            {
                let copy = fs.fork();
                copy.crash(crash);
                check_reopened(
                    &copy,
                    &subject,
                    &format!("seed {seed}, change {at}, {crash:?}"),
                );
            }
        }
    }
}

#[test]
fn a_crash_during_the_recovery_from_a_crash_loses_nothing() {
    let seed = 3;
    for at in 0..changes_of(seed) {
        let (fs, subject) = stopped_at(seed, at);
        let crash = crashes(at)[at as usize % 6];
        let mut recovering = 0;
        loop {
            let copy = fs.fork();
            copy.crash(crash);
            copy.plant(Fault::Stop(recovering));
            if open(&copy).is_ok() {
                break;
            }
            let second = crashes(at + 1000 * recovering)[(at + recovering) as usize % 6];
            copy.crash(second);
            let context =
                format!("change {at}, {crash:?}, then recovery change {recovering}, {second:?}");
            check_reopened(&copy, &subject, &context);
            recovering += 1;
        }
        assert!(recovering >= 3, "a recovery writes at least its own batch");
    }
}

#[test]
fn a_clean_close_leaves_no_torn_tail_and_everything() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    scenario::run(&mut subject, 4, STEPS);
    let expected = subject.state.clone();
    subject.close();
    fs.crash(Crash::LoseAll);

    let (_, recovered) = open(&fs).unwrap();

    assert_eq!(State::of(&recovered), expected);
    assert_eq!(recovered.truncated_tail_bytes, 0);
}
