//! The same seed, the same run, to the byte: with its clients, its workload and its faults.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use ringfence_sim::faults::Fault;
use ringfence_sim::plan::Plan;
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

use super::plan;

/// Set in the processes that a test below starts: where to write what happened.
const TRACE_TO: &str = "RINGFENCE_SIM_TRACE_TO";

/// A short run with watchers and faults of several kinds, the first that there is. One of all disks
/// would end what clients know.
fn drawn() -> Plan {
    let rows = |plan: &Plan| -> BTreeSet<_> {
        let faults = plan.faults.iter();
        faults.map(|one| one.fault.row()).collect()
    };
    let telling = |plan: &Plan| {
        let rows = rows(plan);
        plan.watchers > 0 && rows.len() > 3 && !rows.contains(Fault::RollBackAll.row())
    };
    let mut plans = (1..).map(|seed| plan(seed, 10));
    plans.find(telling).unwrap()
}

/// Runs it, and writes down what happened.
fn run() -> String {
    let (plan, trace) = (drawn(), Trace::new(true));
    let played = play(&plan, trace.clone());
    assert_eq!(played.broken, None);
    let counts = &played.counts;
    // Otherwise little is compared.
    assert!(counts.faults.len() > 2, "{plan:?} {counts:?}");
    assert!(counts.grants > 5 && counts.admitted > 5, "{counts:?}");
    assert!(trace.lines() > 100, "{}", trace.text());
    // What clients saw is in the numbers, and so is what happens too often to be a line.
    format!("{}{counts:?}\n{:016x}\n", trace.text(), played.hash)
}

#[test]
fn two_processes_with_one_seed_write_the_same_trace() {
    if let Some(path) = std::env::var_os(TRACE_TO) {
        std::fs::write(path, run()).unwrap();
        return;
    }
    let dir = std::env::temp_dir().join(format!("ringfence-sim-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let started = ["a", "b"].map(|name| {
        let path = dir.join(name);
        let mut process = Command::new(std::env::current_exe().unwrap());
        let only = "repeats::two_processes_with_one_seed_write_the_same_trace";
        process.args(["--exact", only]).env(TRACE_TO, &path);
        (process.stdout(Stdio::null()).spawn().unwrap(), path)
    });
    let [first, second] = started.map(|(mut process, path)| {
        assert!(process.wait().unwrap().success());
        std::fs::read_to_string(path).unwrap()
    });
    std::fs::remove_dir_all(dir).unwrap();
    for (line, same) in first.lines().zip(second.lines()) {
        assert_eq!(line, same);
    }
    assert_eq!(first.len(), second.len());
}
