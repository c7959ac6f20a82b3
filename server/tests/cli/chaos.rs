//! `chaos`: short runs with real namespaces, what they say, and that nothing is left of them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Dev, Said, await_that, lives, pid, ringfence, signal};

/// A run that ended: what it said, and its report.
struct Ran {
    said: Said,
    dir: TempDir,
}

impl Ran {
    fn report(&self) -> Value {
        serde_json::from_str(&self.file("report.json")).unwrap()
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    fn objects(&self, name: &str) -> Vec<Value> {
        let text = self.file(name);
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn chaos(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = ringfence();
    command
        .arg("chaos")
        .args(arguments)
        .arg("--report")
        .arg(dir);
    command
}

fn run(arguments: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let said = Said::from(chaos(dir.path(), arguments).output().unwrap());
    Ran { said, dir }
}

/// Whether this machine lets a run make networks; says so loudly if not.
fn networks() -> bool {
    let trial = Command::new("unshare").args(["-rn", "true"]).status();
    let root = rustix::process::geteuid().is_root();
    let granted = trial.is_ok_and(|status| status.success());
    if !granted {
        eprintln!("NOT SHOWN: partitions, which need network namespaces (root: {root})");
    }
    granted
}

/// Processes that were started for the run of this directory.
fn processes(dir: &Path) -> Vec<i32> {
    let dir = dir.to_str().unwrap().to_owned();
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let ours = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&dir) && !line.contains(" chaos ") && lives(*pid)
    };
    pids.filter(ours).collect()
}

#[test]
fn a_short_run_with_partitions_kills_and_pauses_is_valid_and_leaves_only_its_report() {
    if !networks() {
        return;
    }
    let ran = run(&[
        "--nodes=3",
        "--clients=4",
        "--duration=30s",
        "--seed=11",
        "--faults=partition,kill,pause",
    ]);

    assert_eq!(ran.said.code, Some(0), "{:?}", ran.said);
    assert!(ran.said.out.contains("VERDICT: valid"), "{}", ran.said.out);
    let report = ran.report();
    for store in ["sqlite", "memory"] {
        let counts = &report["guarded"][store];
        assert!(counts["stale_refused"].as_u64() > Some(0), "{counts}");
        assert_eq!(counts["stale_admitted"], 0, "{counts}");
        assert_eq!(counts["lost_updates"], 0, "{counts}");
    }
    let unguarded = &report["unguarded"];
    assert!(
        unguarded["stale_admitted"].as_u64() > Some(0),
        "{unguarded}"
    );
    for kind in ["partition", "kill", "pause"] {
        let effective = &report["coverage"]["effective"][kind];
        assert!(effective.as_u64() > Some(0), "{kind}: {report}");
    }
    let faults = ran.objects("faults.jsonl");
    let dropped = faults.iter().any(|fault| {
        fault["kind"] == "partition" && fault["counters"]["dropped"].as_u64() > Some(0)
    });
    assert!(dropped, "{faults:?}");
    assert!(ran.file("timeline.html").len() > 10_000);
    assert_eq!(processes(ran.dir.path()), Vec::<i32>::new());
    assert!(!ran.dir.path().join("scratch").exists());

    // The history is there for a later check.
    let kinds: Vec<String> = ran
        .objects("history.jsonl")
        .iter()
        .filter_map(|record| record.as_object()?.keys().next().cloned())
        .collect();
    for kind in ["header", "invoked", "returned", "belief", "guard", "fault"] {
        assert!(kinds.iter().any(|one| one == kind), "no {kind}");
    }
}

#[test]
fn a_guard_that_lets_everybody_in_makes_the_run_invalid() {
    let ran = run(&[
        "--nodes=3",
        "--clients=4",
        "--duration=12s",
        "--seed=5",
        "--faults=none",
        "--planted-open-guard",
    ]);

    assert_eq!(ran.said.code, Some(1), "{:?}", ran.said);
    let report = ran.report();
    assert_eq!(report["verdict"], "invalid");
    assert!(
        report["guarded"]["sqlite"]["stale_admitted"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(report["guarded"]["memory"]["stale_admitted"], 0, "{report}");
    let violations = report["violations"].as_array().unwrap();
    assert!(
        violations.iter().all(|one| one["invariant"] != "I2"),
        "{report}"
    );
    assert!(
        violations.iter().any(|one| one["invariant"] == "I1"),
        "{report}"
    );
    assert!(ran.said.out.contains("REPRODUCE:"), "{}", ran.said.out);
    // What the stores and nodes had on their disks is kept.
    assert!(ran.dir.path().join("data/stores/sqlite").is_dir());
    assert!(ran.dir.path().join("data/n1").is_dir());
}

/// Runs a command where the kernel grants neither rights nor namespaces.
fn without_rights(dir: &Path, arguments: &[&str]) -> Option<Said> {
    let program = chaos(dir, arguments);
    let line = std::iter::once(program.get_program()).chain(program.get_args());
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c"])
        .arg(
            "echo 0 > /proc/sys/user/max_user_namespaces && \
             exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"",
        )
        .arg("sh")
        .args(line)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let said = Said::from(output);
    if said.err.contains("max_user_namespaces") || said.err.contains("unshare") {
        eprintln!("NOT SHOWN: a machine without namespaces, which needs one with: {said:?}");
        return None;
    }
    Some(said)
}

#[test]
fn where_the_kernel_grants_no_namespaces_it_is_said_which_faults_are_off_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let Some(said) = without_rights(dir.path(), &["--duration=10s", "--faults=partition"]) else {
        return;
    };
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("off: partition:"), "{said:?}");
    assert!(said.err.contains("no fault can be had"), "{said:?}");

    // What needs no network goes on, and what was asked for and is off leaves the verdict open.
    let arguments = [
        "--nodes=3",
        "--clients=2",
        "--duration=14s",
        "--seed=2",
        "--faults=kill,partition",
    ];
    let Some(said) = without_rights(dir.path(), &arguments) else {
        return;
    };
    assert_eq!(said.code, Some(2), "{said:?}");
    let asked = "partition was asked for and is off";
    assert!(said.out.contains(asked), "{said:?}");
    assert!(
        said.out.contains("1 kill") || said.out.contains("2 kill"),
        "{said:?}"
    );
}

#[test]
fn what_interrupts_or_kills_a_run_leaves_no_process_behind() {
    for (kind, code) in [(Signal::INT, Some(2)), (Signal::KILL, None)] {
        let dir = tempfile::tempdir().unwrap();
        let faults = if networks() { "isolate" } else { "kill" };
        let mut command = chaos(dir.path(), &["--duration=60s", "--nodes=3", "--seed=6"]);
        command.args(["--faults", faults]);
        let mut process = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        // Works: the first line that shows how things stand.
        assert!(lines.any(|line| line.contains("operations")), "{kind:?}");
        await_that("nodes and clients run", || processes(dir.path()).len() > 3);

        signal(pid(&process), kind);
        // Whatever else it says must not stop it.
        let rest: Vec<String> = lines.collect();
        assert_eq!(process.wait().unwrap().code(), code, "{rest:?}");

        await_that("no process is left", || processes(dir.path()).is_empty());
        assert!(!dir.path().join("scratch").exists(), "{kind:?}");
        let history = std::fs::read_to_string(dir.path().join("history.jsonl")).unwrap();
        assert!(history.starts_with("{\"header\""), "{history:.200}");
    }
}

#[test]
fn a_cluster_that_is_there_is_worked_on_while_a_script_disturbs_it() {
    let dev = Dev::start(3);
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("disturb.sh");
    let (victim, log) = (dev.pids()[2], dir.path().join("called"));
    let text = format!(
        "echo \"$1 $2\" >> {}\n[ \"$1\" = begin ] && exec kill -STOP {victim}\nexec kill -CONT {victim}\n",
        log.display()
    );
    std::fs::write(&script, text).unwrap();
    let report = dir.path().join("report");
    let hook = format!("sh {}", script.display());
    let endpoints = dev.endpoints();
    let mut command = chaos(&report, &["--clients=3", "--duration=16s", "--seed=8"]);
    command.args(["--target", &endpoints, "--hook", &hook, "--faults", "pause"]);

    let said = Said::from(command.output().unwrap());

    assert_eq!(said.code, Some(0), "{said:?}");
    let called = std::fs::read_to_string(&log).unwrap();
    assert!(called.starts_with("begin pause\nheal pause\n"), "{called}");
    let calls = called.lines().count();
    assert_eq!(calls % 2, 0, "{called}");
}

#[test]
fn a_schedule_is_replayed_from_its_file() {
    let first = run(&[
        "--nodes=3",
        "--clients=2",
        "--duration=14s",
        "--seed=21",
        "--faults=kill",
        "--no-control",
    ]);
    let schedule = first.dir.path().join("schedule.json");
    let again = run(&["--no-control", "--schedule", schedule.to_str().unwrap()]);

    assert_eq!(first.file("schedule.json"), again.file("schedule.json"));
    assert_eq!(again.report()["seed"], 21);
    assert_eq!(again.report()["unguarded"], Value::Null);
    let what = |ran: &Ran| -> Vec<Value> {
        let faults = ran.objects("faults.jsonl");
        faults.iter().map(|fault| fault["kind"].clone()).collect()
    };
    assert_eq!(what(&first), what(&again));
}

#[test]
fn a_log_without_room_ends_its_node_which_comes_back_and_the_fault_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let schedule = dir.path().join("schedule.json");
    let text = r#"{"version": 1, "seed": 4, "nodes": 3, "clients": 3, "duration_ms": 14000,
        "faults": [{"id": 1, "kind": "disk", "begin_ms": 2500, "lasts_ms": 1500,
            "fault": {"full_log": {"victim": "leader"}}}]}"#;
    std::fs::write(&schedule, text).unwrap();
    let ran = run(&["--faults=disk", "--schedule", schedule.to_str().unwrap()]);

    let report = ran.report();
    assert_ne!(report["verdict"], "invalid", "{report}");
    let faults = ran.objects("faults.jsonl");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0]["took_effect"], true, "{faults:?}");
    assert_eq!(faults[0]["counters"]["log_full"], 1, "{faults:?}");
    let note = faults[0]["note"].as_str().unwrap();
    assert!(note.contains("its log found no room"), "{note}");
    assert!(
        report["coverage"]["leader_changes"].as_u64() > Some(0),
        "{report}"
    );
}

/// Each kind of fault in each of its ways, one after another: what each is called in the schedule,
/// the kind it belongs to, and what of the machine it needs beyond signals.
const EVERY: [(&str, &str, Option<&str>); 16] = [
    (
        r#"{"partition": {"shape": "sides", "order": [0, 1, 2], "clients_too": true}}"#,
        "partition",
        Some(NETWORK),
    ),
    (
        r#"{"partition": {"shape": "bridge", "order": [2, 0, 1], "clients_too": false}}"#,
        "partition",
        Some(NETWORK),
    ),
    (
        r#"{"partition": {"shape": "bridge", "order": [0, 1, 2], "clients_too": false}}"#,
        "partition",
        Some(NETWORK),
    ),
    (
        r#"{"oneway": {"victim": "leader", "direction": "out", "clients_too": false}}"#,
        "oneway",
        Some(NETWORK),
    ),
    (
        r#"{"oneway": {"victim": "leader", "direction": "in", "clients_too": true}}"#,
        "oneway",
        Some(NETWORK),
    ),
    (
        r#"{"isolate": {"victim": "leader", "clients_too": true}}"#,
        "isolate",
        Some(NETWORK),
    ),
    (
        r#"{"slow": {"victim": null, "delay_ms": 20, "jitter_ms": 10, "loss_percent": 5, "duplicate_percent": 5, "reorder_percent": 5, "bytes_per_second": null}}"#,
        "slow",
        Some(NETWORK),
    ),
    (r#"{"kill": {"victims": ["leader"]}}"#, "kill", None),
    (r#"{"pause": {"victims": ["leader"]}}"#, "pause", None),
    (
        r#"{"torn_tail": {"victim": {"node": 0}, "bytes": 700}}"#,
        "disk",
        None,
    ),
    (r#"{"full_log": {"victim": {"node": 1}}}"#, "disk", None),
    (
        r#"{"full_disk": {"victim": {"node": 2}}}"#,
        "disk",
        Some("disk: full"),
    ),
    (
        r#"{"power_loss": {"victim": "leader"}}"#,
        "disk",
        Some("disk: power loss"),
    ),
    (r#""grow""#, "membership", None),
    (
        r#"{"replace": {"victim": {"node": 1}}}"#,
        "membership",
        None,
    ),
    (
        r#"{"kill": {"victims": [{"node": 0}, {"node": 1}, {"node": 2}]}}"#,
        "kill",
        None,
    ),
];
const NETWORK: &str = "partition, oneway, isolate, slow";

#[test]
fn every_fault_takes_effect_on_real_processes_and_no_promise_breaks() {
    const EACH_MS: usize = 5_000;
    let planned = |(at, (fault, kind, _)): (usize, &(&str, &str, Option<&str>))| {
        let (id, begin) = (at + 1, 2_500 + at * EACH_MS);
        format!(
            r#"{{"id": {id}, "kind": "{kind}", "begin_ms": {begin}, "lasts_ms": 1500, "fault": {fault}}}"#
        )
    };
    let faults: Vec<String> = EVERY.iter().enumerate().map(planned).collect();
    let text = format!(
        r#"{{"version": 1, "seed": 4, "nodes": 3, "clients": 3, "duration_ms": {}, "faults": [{}]}}"#,
        20_500 + EVERY.len() * EACH_MS,
        faults.join(",")
    );
    let dir = tempfile::tempdir().unwrap();
    let schedule = dir.path().join("schedule.json");
    std::fs::write(&schedule, text).unwrap();
    let ran = run(&["--no-control", "--schedule", schedule.to_str().unwrap()]);

    let report = ran.report();
    assert_ne!(report["verdict"], "invalid", "{report}");
    let off: Vec<&str> = report["capabilities"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["available"] == false)
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    for name in &off {
        eprintln!("NOT SHOWN: {name}, which this machine cannot do: {report}");
    }
    let done = ran.objects("faults.jsonl");
    let mut bridges = Vec::new();
    for (at, (fault, kind, needs)) in EVERY.iter().enumerate() {
        if needs.is_some_and(|needs| off.contains(&needs)) {
            continue;
        }
        let told = done.iter().find(|told| told["id"] == at + 1);
        let told = told.unwrap_or_else(|| panic!("{fault} is told of: {done:?}"));
        assert_eq!(told["kind"], *kind, "{told}");
        if fault.contains("bridge") {
            bridges.push(told);
        } else {
            assert_eq!(told["took_effect"], true, "{told}");
        }
    }
    // Followers say nothing to each other, so a bridge that leads keeps no node from anything. Two
    // nodes do not lead in turn while nothing happens to them.
    let effective = bridges.iter().any(|told| told["took_effect"] == true);
    assert!(effective || bridges.is_empty(), "{bridges:?}");
    assert_eq!(processes(ran.dir.path()), Vec::<i32>::new());
}

#[test]
fn bad_requests_are_told_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], expected: &str| {
        let said = Said::from(chaos(dir.path(), arguments).output().unwrap());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(expected), "{expected}: {said:?}");
    };
    refused(&["--faults=partition,flood"], "\"flood\" is no fault");
    refused(&["--nodes=2"], "3..=9");
    refused(&["--clients=0"], "1..=32");
    refused(&["--duration=5s", "--faults=kill"], "too short");
    refused(&["--hook=./x"], "--target");
    refused(&["--target=127.0.0.1:1", "--faults=kill"], "--hook");
    refused(&["--target=127.0.0.1:1"], "the target does not serve");
    refused(
        &["--schedule=/nowhere/schedule.json"],
        "cannot read the schedule",
    );
}
