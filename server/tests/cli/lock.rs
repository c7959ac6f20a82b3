//! `lock`: CMD runs under its lease, and never longer than it.

use std::process::Child;
use std::time::Duration;

use ringfence_client::{BootClock, Clock};
use rustix::process::Signal;
use tempfile::TempDir;

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

fn ends(lock: Child) -> Said {
    lock.wait_with_output().unwrap().into()
}

#[test]
fn cmd_knows_its_lease_and_its_code_is_passed_on() {
    let dev = Dev::start(1);
    let script = "echo $RINGFENCE_LEASE $RINGFENCE_TOKEN ${RINGFENCE_SESSION%.*}; exit 7";
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
    let late = dev.run(&["lock", "jobs/a", "--wait", "100ms", "--", "echo", "ran"]);
    assert_eq!(
        (late.code, late.reason().as_str(), late.out.as_str()),
        (Some(75), "WAIT_TIMEOUT", "")
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
fn cmd_does_not_outlive_lock() {
    let dev = Dev::start(1);
    let (mut lock, _dir, cmd) = lock(&dev, "15s", "begin; exec sleep 60");

    signal(pid(&lock), Signal::KILL);
    lock.wait().unwrap();

    await_that("CMD ends with lock", || !lives(cmd));
}
