//! `lock`: CMD runs under its lease, and never longer than it.

use std::process::Child;
use std::time::Duration;

use ringfence_client::{BootClock, Clock};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::access::Node;
use crate::harness::{Dev, Said, await_that, lives, pid, signal};

/// Starts `lock` with a shell script, and waits until the script has called `begin`, which writes
/// its process id into its directory.
fn lock(dev: &Dev, ttl: &str, script: &str) -> (Child, TempDir, i32) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("begin() {{ echo $$ > new && mv new begun; }}; {script}");
    let mut command = dev.command(&["lock", "jobs/a", "--ttl", ttl, "--", "sh", "-c", &script]);
    let lock = command.current_dir(dir.path()).spawn().unwrap();
    let begun = dir.path().join("begun");
    await_that("CMD runs", || begun.exists());
    let cmd = std::fs::read_to_string(begun)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    (lock, dir, cmd)
}

/// CMD ends although `ringfence lock` is stopped, and can no longer end it.
fn ends_although_stopped(lock: Child, cmd: i32) {
    signal(pid(&lock), Signal::STOP);
    await_that("CMD ends", || !lives(cmd));
    signal(pid(&lock), Signal::CONT);

    assert_ne!(ends(lock).code, Some(0));
}

fn ends(lock: Child) -> Said {
    lock.wait_with_output().unwrap().into()
}

#[test]
fn cmd_knows_its_lease_and_its_code_is_passed_on() {
    let dev = Dev::start(1);
    let script = "echo $RINGFENCE_LEASE $RINGFENCE_TOKEN ${RINGFENCE_SESSION%%.*}; exit 7";
    let said = dev.run(&["lock", "jobs/a", "--", "sh", "-c", script]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(7), "jobs/a 1 1\n"),
        "{said:?}"
    );

    let killed = dev.run(&["lock", "jobs/a", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code, Some(137), "{killed:?}");
    let missing = dev.run(&["lock", "jobs/a", "--", "/nowhere/at/all"]);
    assert_eq!(
        (missing.code, missing.out.as_str()),
        (Some(127), ""),
        "{missing:?}"
    );
    // Each of them has given the lease back.
    assert_eq!(
        dev.run(&["lease", "get", "jobs/a"]).object()["token"],
        serde_json::Value::Null
    );
    assert_eq!(dev.run(&["session", "list"]).out, "");
}

#[test]
fn one_that_does_not_get_the_lease_does_not_run() {
    let dev = Dev::start(1);
    let (first, _dir, cmd) = lock(&dev, "15s", "begin; exec sleep 60");

    let held = dev.run(&["lock", "jobs/a", "--", "echo", "ran"]);
    assert_eq!(
        (held.code, held.reason().as_str(), held.out.as_str()),
        (Some(1), "HELD", "")
    );
    let error = held.error();
    assert_eq!(error["token"], 1, "{held:?}");
    assert!(
        error["holder"].is_string() && error["hint"].is_string(),
        "{held:?}"
    );
    let late = dev.run(&["lock", "jobs/a", "--wait", "100ms", "--", "echo", "ran"]);
    assert_eq!(
        (late.code, late.reason().as_str(), late.out.as_str()),
        (Some(75), "WAIT_TIMEOUT", "")
    );
    let patient = dev.say(&["lock", "jobs/a", "--wait", "1s", "--", "echo", "ran"]);
    assert!(
        patient.err.contains("waiting for jobs/a: held by"),
        "{patient:?}"
    );

    signal(cmd, Signal::KILL);
    assert_eq!(ends(first).code, Some(137));
}

#[test]
fn signals_are_passed_on() {
    let dev = Dev::start(1);
    let (lock, dir, _) = lock(
        &dev,
        "15s",
        "trap 'touch told; exit 3' TERM; begin; sleep 60 & wait",
    );

    signal(pid(&lock), Signal::TERM);

    assert_eq!(ends(lock).code, Some(3));
    assert!(dir.path().join("told").exists());
    assert_eq!(
        dev.run(&["session", "list"]).out,
        "",
        "the session was not closed"
    );
}

#[test]
fn cmd_is_told_to_stop_when_its_session_is_evicted() {
    let dev = Dev::start(1);
    let (lock, dir, _) = lock(
        &dev,
        "3s",
        "trap 'touch told; exit 0' TERM; begin; sleep 60 & wait",
    );

    let session = dev.run(&["session", "list"]).object()["session_number"].to_string();
    dev.run(&["session", "evict", &session, "--reason", "drill"])
        .object();

    let said = ends(lock);
    assert_eq!(
        (said.code, said.reason().as_str()),
        (Some(76), "LOST"),
        "{said:?}"
    );
    assert!(dir.path().join("told").exists(), "CMD got no SIGTERM");
}

#[test]
fn cmd_that_gives_its_own_lease_away_is_told_to_stop() {
    let dev = Dev::start(1);
    let script = "trap 'touch told; exit 1' TERM; \
                  $R lease release $RINGFENCE_LEASE $RINGFENCE_TOKEN; \
                  while :; do sleep 0.1; done";
    let dir = tempfile::tempdir().unwrap();
    let mut command = dev.command(&["lock", "jobs/a", "--ttl", "60s", "--", "sh", "-c", script]);
    let program = command.get_program().to_owned();
    let started = BootClock.now();
    let lock = command
        .env("R", program)
        .current_dir(dir.path())
        .spawn()
        .unwrap();

    let said = ends(lock);

    // The next keep-alive would tell after some 20 s: a watch tells at once.
    let took = BootClock.now().saturating_since(started);
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(said.code, Some(76), "{said:?}");
    assert!(dir.path().join("told").exists());
}

#[test]
fn cmd_that_does_not_stop_is_killed_before_its_window_ends() {
    let dev = Dev::start(1);
    let ttl = Duration::from_secs(3);
    let (lock, _dir, cmd) = lock(&dev, "3s", "trap '' TERM; begin; while :; do sleep 1; done");

    // Whatever was acknowledged was sent before this.
    let stopped = BootClock.now();
    signal(dev.pids()[0], Signal::STOP);
    await_that("CMD ends", || !lives(cmd));
    let took = BootClock.now().saturating_since(stopped);
    signal(dev.pids()[0], Signal::CONT);

    assert!(took < ttl, "CMD outlived its lease: {took:?}");
    let said = ends(lock);
    assert_eq!(
        (said.code, said.reason().as_str()),
        (Some(76), "LOST"),
        "{said:?}"
    );
}

#[test]
fn cmd_does_not_outlive_its_lease_while_lock_is_stopped() {
    let dev = Dev::start(1);
    let (lock, _dir, cmd) = lock(&dev, "2s", "begin; exec sleep 60");

    let stopped = BootClock.now();
    signal(pid(&lock), Signal::STOP);
    await_that("CMD ends", || !lives(cmd));
    let took = BootClock.now().saturating_since(stopped);
    signal(pid(&lock), Signal::CONT);

    assert!(
        took < Duration::from_secs(2),
        "CMD outlived its lease: {took:?}"
    );
    assert_ne!(ends(lock).code, Some(0));
}

#[test]
fn what_cmd_has_started_does_not_outlive_lock() {
    let dev = Dev::start(1);
    let script = "sleep 60 & echo $! > child; begin; wait";
    let (mut lock, dir, _) = lock(&dev, "15s", script);
    let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
    let child = child.trim().parse().unwrap();

    signal(pid(&lock), Signal::KILL);
    lock.wait().unwrap();

    await_that("the child of CMD ends", || !lives(child));
}

#[test]
fn cmd_does_not_outlive_lock() {
    let dev = Dev::start(1);
    let (mut lock, _dir, cmd) = lock(&dev, "15s", "begin; exec sleep 60");

    signal(pid(&lock), Signal::KILL);
    lock.wait().unwrap();

    await_that("CMD ends with lock", || !lives(cmd));
}

/// The cluster waits for the old holder to hear of it, and `lock` has heard of it when CMD has ended.
#[test]
fn nobody_is_granted_a_revoked_lease_while_cmd_still_ends() {
    let dev = Dev::start(1);
    let script =
        "trap '' TERM; begin; while :; do cat /proc/uptime > at && mv at last; sleep 0.01; done";
    let (lock, dir, _cmd) = lock(&dev, "4s", script);
    let wait = [
        "lock", "jobs/a", "--ttl", "4s", "--wait", "60s", "--", "cat",
    ];
    let next = dev
        .command(&[&wait[..], &["/proc/uptime"]].concat())
        .spawn();
    let next = next.unwrap();
    let lease = || dev.run(&["lease", "get", "jobs/a"]).object();
    await_that("the next one waits", || lease()["waiters"] == 1);

    let token = lease()["token"].to_string();
    let revoked = dev.run(&["lease", "revoke", "jobs/a", &token, "--reason", "drill"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");

    let uptime = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let next = ends(next);
    assert_eq!(ends(lock).code, Some(76));
    let last = std::fs::read_to_string(dir.path().join("last")).unwrap();
    assert!(uptime(&last) < uptime(&next.out), "{last:?} {next:?}");
}
/// The watchdog of a `lock`.
fn watchdog(lock: &Child) -> i32 {
    let mut found = None;
    await_that("there is a watchdog", || {
        found = children(pid(lock)).into_iter().find(|child| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&line).contains("lock-watchdog");
            ours && lives(*child) && blocks_sigterm(*child)
        });
        found.is_some()
    });
    found.unwrap()
}

/// Whether it has got as far as that; before, it is a process like any other.
fn blocks_sigterm(process: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & 1 << (Signal::TERM.as_raw() - 1) != 0)
}

fn children(parent: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap();
    children
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

#[test]
fn the_end_of_a_service_ends_no_watchdog() {
    let dev = Dev::start(1);
    let (lock, _dir, cmd) = lock(
        &dev,
        "2s",
        "trap '' TERM; begin; while :; do sleep 0.1; done",
    );
    let watchdog = watchdog(&lock);

    signal(watchdog, Signal::TERM);
    signal(watchdog, Signal::TSTP);
    signal(pid(&lock), Signal::TERM);
    ends_although_stopped(lock, cmd);
}

#[test]
fn a_watchdog_that_was_killed_is_replaced() {
    let dev = Dev::start(1);
    let (lock, _dir, cmd) = lock(&dev, "2s", "begin; exec sleep 60");
    let first = watchdog(&lock);

    signal(first, Signal::KILL);
    await_that("it ends", || !lives(first));
    let second = watchdog(&lock);
    assert_ne!(first, second);
    ends_although_stopped(lock, cmd);
}

#[test]
fn a_stopped_watchdog_does_not_hold_the_lease() {
    let dev = Dev::start(1);
    let (mut lock, dir, _) = lock(&dev, "15s", "begin; while [ ! -e go ]; do sleep 0.1; done");
    signal(watchdog(&lock), Signal::STOP);

    std::fs::write(dir.path().join("go"), "").unwrap();
    await_that("lock ends", || lock.try_wait().unwrap().is_some());
    assert_eq!(lock.wait().unwrap().code(), Some(0));
    let lease = dev.run(&["lease", "get", "jobs/a"]).object();
    assert_eq!(lease["token"], serde_json::Value::Null);
}

#[test]
fn a_binary_that_is_replaced_while_lock_waits_still_guards_cmd() {
    let dev = Dev::start(1);
    let (before, dir, _) = lock(&dev, "15s", "begin; while [ ! -e go ]; do sleep 0.1; done");
    let copy = dir.path().join("copy");
    // Another process writes it: a program that this one has open cannot be started, and what other
    // tests start meanwhile has the same files open.
    let mut copying = std::process::Command::new("cp");
    copying.arg(env!("CARGO_BIN_EXE_ringfence")).arg(&copy);
    assert!(copying.status().unwrap().success());
    let mut behind = std::process::Command::new(&copy);
    let script = "echo $$ > behind.new && mv behind.new behind; exec sleep 60";
    behind.args(["lock", "jobs/a", "--wait", "30s", "--ttl", "2s", "--"]);
    behind.args(["sh", "-c", script]).current_dir(dir.path());
    let mut behind = behind
        .env("RINGFENCE_ENDPOINTS", dev.endpoints())
        .spawn()
        .unwrap();
    await_that("it waits", || {
        dev.run(&["session", "list"]).objects().len() == 2
    });

    std::fs::remove_file(&copy).unwrap();
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(ends(before).code, Some(0));
    let begun = dir.path().join("behind");
    await_that("CMD runs", || begun.exists());
    let cmd = std::fs::read_to_string(begun)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    watchdog(&behind);
    signal(pid(&behind), Signal::STOP);
    await_that("CMD ends", || !lives(cmd));
    signal(pid(&behind), Signal::CONT);
    behind.wait().unwrap();
}

#[test]
fn what_cmd_leaves_behind_ends_before_the_lease() {
    let dev = Dev::start(1);
    let script = "(trap '' TERM; sleep 60) & echo $! > child; begin; exit 3";
    let (lock, dir, _) = lock(&dev, "4s", script);
    assert_eq!(ends(lock).code, Some(3));
    let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
    assert!(!lives(child.trim().parse().unwrap()));
}

/// As in a container, whose first process waits for no child: here it is this one.
#[test]
fn what_has_ended_and_was_not_waited_for_does_not_hold_the_lease() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let dev = Dev::start(1);
    let script = "begin; while [ ! -e go ]; do sleep 0.1; done; sleep 60 & exit 3";
    let (lock, dir, _) = lock(&dev, "60s", script);
    std::fs::write(dir.path().join("go"), "").unwrap();
    let begun = BootClock.now();
    let said = ends(lock);
    let took = BootClock.now().saturating_since(begun);
    assert_eq!(said.code, Some(3), "{said:?}");
    // SIGKILL would come after 4.5 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// As behind a restore, where a person would otherwise look at a command that says nothing for minutes.
#[test]
fn a_wait_in_quiet_time_says_for_how_long_nothing_is_granted() {
    let node = Node::start(&["--quiet-time", "5m"]);
    let said = node.say(&["lock", "jobs/a", "--wait", "2s", "--", "true"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    let words = "waiting for jobs/a: quiet time, no lease is granted for 5m";
    let near = "waiting for jobs/a: quiet time, no lease is granted for 4m";
    assert!(
        said.err.contains(words) || said.err.contains(near),
        "{said:?}"
    );
}
