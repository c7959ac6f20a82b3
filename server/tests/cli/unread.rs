//! Commands whose result no process reads, or that cannot be written.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::harness::{Dev, Said, await_that, ends_within, pid, ringfence, signal};

/// A pipe that no process reads.
fn gone() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A pipe that is full, and whose reader does not read.
fn stuffed() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let blocking = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, blocking | OFlags::NONBLOCK).unwrap();
    for chunk in [4_096, 1] {
        while writer.write(&vec![b'x'; chunk]).is_ok() {}
    }
    fcntl_setfl(&writer, blocking).unwrap();
    (reader, writer.into())
}

/// A disk that is full.
fn full() -> Stdio {
    OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn run_to(dev: &Dev, stdout: Stdio, arguments: &[&str]) -> Said {
    let mut command = dev.command(arguments);
    command.stdout(stdout).output().unwrap().into()
}

#[test]
fn the_code_of_a_verdict_stands_though_nobody_reads_it() {
    let dev = Dev::start(1);
    let granted = dev.run(&["lease", "acquire", "jobs/a"]).object();
    let current = granted["token"].to_string();
    let check = |stdout, token: &str| run_to(&dev, stdout, &["check", "jobs/a", token]);

    assert_eq!(check(gone(), &current).code, Some(0));
    assert_eq!(check(gone(), "4611686018427387904").code, Some(1));
    // Nothing was said, so the code says neither.
    for token in [current.as_str(), "4611686018427387904"] {
        let unwritten = check(full(), token);
        assert_eq!(
            (unwritten.code, unwritten.reason()),
            (Some(71), "FAULT".into())
        );
    }
}

#[test]
fn a_grant_that_nobody_was_told_of_is_given_back() {
    let dev = Dev::start(1);
    let session = dev.run(&["session", "open"]).object();
    let handle = session["session"].as_str().unwrap();
    let within = ["lease", "acquire", "jobs/a", "--session", handle];
    for stdout in [gone as fn() -> Stdio, full] {
        for arguments in [&within[..], &within[..3]] {
            let untold = run_to(&dev, stdout(), arguments);
            assert_eq!(untold.code, Some(71), "{untold:?}");
            let lease = dev.run(&["lease", "get", "jobs/a"]).object();
            assert_eq!(lease["token"], serde_json::Value::Null, "{arguments:?}");
            // Only the session that was there before.
            assert_eq!(dev.run(&["session", "list"]).objects().len(), 1);
        }
    }
}

/// 0 would say that the history is valid.
#[test]
fn the_code_of_a_judged_history_stands_though_nobody_reads_it() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/check/tests");
    let judge = |file: &str| -> Said {
        let mut command = ringfence();
        command.args(["check-history", &format!("{tests}/{file}")]);
        command.stdout(gone()).output().unwrap().into()
    };
    let valid = judge("tricky/an_unanswered_acquire_was_granted.jsonl");
    assert_eq!(valid.code, Some(0), "{valid:?}");
    let invalid = judge("bad/two_hold_at_once.jsonl");
    assert_eq!(invalid.code, Some(1), "{invalid:?}");
}

/// The same of a run: 0 would say that the cluster kept its promises.
#[test]
fn the_code_of_a_run_stands_though_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = |stdout: Stdio| -> Said {
        let mut command = ringfence();
        command.args([
            "chaos",
            "--nodes",
            "3",
            "--clients",
            "4",
            "--duration",
            "12s",
        ]);
        command.args(["--seed", "5", "--faults", "none", "--planted-open-guard"]);
        command.arg("--report").arg(dir.path());
        command.stdout(stdout).output().unwrap().into()
    };
    let read = run(Stdio::piped());
    let unread = run(gone());
    assert_eq!(unread.code, read.code, "read {read:?}, unread {unread:?}");
}

/// A session that no caller received is open for no client.
#[test]
fn a_session_that_nobody_was_told_of_is_no_success() {
    let dev = Dev::start(1);
    let opened = run_to(&dev, gone(), &["session", "open", "--ttl", "1m"]);
    let left = dev.run(&["session", "list"]).objects().len();
    assert!(
        opened.code != Some(0) && left == 0,
        "{opened:?} with {left} sessions left"
    );
}

/// As in `ringfence session keep-alive … | head -1 &`: who reads the first line knows that it is kept
/// alive.
#[test]
fn a_session_is_kept_alive_though_nobody_reads_of_it() {
    let dev = Dev::start(1);
    let session = dev.run(&["session", "open", "--ttl", "6s"]).object();
    let handle = session["session"].as_str().unwrap();
    let mut command = dev.command(&["session", "keep-alive", handle]);
    let mut keeping = command.spawn().unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(keeping.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    assert!(first.contains("LIVE"), "{first}");
    drop(lines);
    // Longer than half of the window, and shorter than the window.
    for node in dev.pids() {
        signal(node, Signal::STOP);
    }
    let stopped = ends_within(&mut keeping, Duration::from_millis(4_500));
    for node in dev.pids() {
        signal(node, Signal::CONT);
    }
    let ended = ends_within(&mut keeping, Duration::from_secs(8));
    let sessions = dev.run(&["session", "list"]).objects().len();
    keeping.kill().ok();
    keeping.wait().unwrap();
    assert!(
        ended.is_none() && sessions == 1,
        "in jeopardy it ended ({stopped:?}), then {ended:?}, and {sessions} sessions are left"
    );
}

/// Its window passes meanwhile, and no other client would keep it alive.
#[test]
fn what_is_not_read_in_time_is_given_back() {
    let dev = Dev::start(1);
    for arguments in [
        &["lease", "acquire", "jobs/a", "--ttl", "2s"][..],
        &["session", "open", "--ttl", "2s"],
    ] {
        let (_reader, stdout) = stuffed();
        let late = run_to(&dev, stdout, arguments);
        assert_eq!(
            (late.code, late.reason()),
            (Some(71), "FAULT".into()),
            "{late:?}"
        );
        let lease = dev.run(&["lease", "get", "jobs/a"]).object();
        assert_eq!(lease["token"], serde_json::Value::Null);
        assert_eq!(dev.run(&["session", "list"]).out, "", "{arguments:?}");
    }
}

#[test]
fn a_signal_ends_what_waits_for_its_reader() {
    let dev = Dev::start(1);
    for arguments in [
        &["lease", "acquire", "jobs/a", "--ttl", "1m"][..],
        &["session", "open", "--ttl", "1m"],
    ] {
        let (_reader, stdout) = stuffed();
        let waits = dev.command(arguments).stdout(stdout).spawn().unwrap();
        let sessions = || dev.run(&["session", "list"]).objects().len();
        await_that("it is granted", || match arguments[0] {
            "lease" => {
                let leases = dev.run(&["lease", "list"]).objects();
                leases.iter().any(|lease| lease["token"].is_u64())
            }
            _ => sessions() == 1,
        });
        signal(pid(&waits), Signal::TERM);
        let ended = Said::from(waits.wait_with_output().unwrap());
        assert_eq!(
            (ended.code, ended.reason()),
            (Some(143), "INTERRUPTED".into()),
            "{ended:?}"
        );
        assert_eq!(sessions(), 0, "{arguments:?}");
    }
}

/// Not even its first line, and it hears of signals all the same.
#[test]
fn a_reader_that_does_not_read_holds_up_no_keep_alive() {
    let dev = Dev::start(1);
    let session = dev.run(&["session", "open", "--ttl", "2s"]).object();
    let handle = session["session"].as_str().unwrap();
    let (_reader, stdout) = stuffed();
    let mut command = dev.command(&["session", "keep-alive", handle]);
    let mut keeping = command.stdout(stdout).spawn().unwrap();
    // Longer than twice the TTL.
    assert_eq!(ends_within(&mut keeping, Duration::from_secs(5)), None);
    assert_eq!(dev.run(&["session", "list"]).objects().len(), 1);
    signal(pid(&keeping), Signal::TERM);
    let ended = Said::from(keeping.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// stderr may have no reader either, or stand on a disk that is full.
#[test]
fn the_code_of_a_failure_stands_though_it_cannot_be_told() {
    for stderr in [gone as fn() -> Stdio, full] {
        let nowhere = ["--endpoints", "127.0.0.1:1", "--timeout", "1s"];
        for (json, arguments) in [(false, nowhere), (true, nowhere)] {
            let mut command = ringfence();
            command.args(arguments).args(json.then_some("--json"));
            command.args(["lease", "get", "jobs/a"]).stderr(stderr());
            let said = Said::from(command.output().unwrap());
            assert_eq!(said.code, Some(69), "{said:?}");
        }
        let mut wrong = ringfence();
        wrong.args(["--json", "nonsense"]).stderr(stderr());
        assert_eq!(Said::from(wrong.output().unwrap()).code, Some(2));
    }
}

/// What is said meanwhile is for people, and holds up nothing: a lease that was granted would be kept
/// alive for a CMD that never starts.
#[test]
fn a_lease_is_waited_for_though_nobody_reads_of_it() {
    let dev = Dev::start(1);
    let (_reader, stuffed) = stuffed();
    for stderr in [gone(), full(), stuffed] {
        let held = dev.run(&["lease", "acquire", "jobs/a"]).object();
        let mut command = ringfence();
        command.env("RINGFENCE_ENDPOINTS", dev.endpoints());
        command.args(["lock", "jobs/a", "--wait", "30s", "--", "true"]);
        let mut waits = command.stderr(stderr).spawn().unwrap();
        await_that("it waits", || {
            dev.run(&["session", "list"]).objects().len() == 2
        });
        // Longer than it is silent.
        let early = ends_within(&mut waits, Duration::from_millis(1_500));
        let session = held["session"].as_str().unwrap();
        dev.run(&["session", "close", session]).object();
        let ended = ends_within(&mut waits, Duration::from_secs(10));
        waits.kill().ok();
        waits.wait().unwrap();
        let code = ended.and_then(|ended| ended.code());
        assert_eq!((early, code), (None, Some(0)), "{ended:?}");
    }
}

/// As in `ringfence session keep-alive … > log 2>&1 &`, with a disk that is full.
#[test]
fn a_session_is_kept_alive_though_nothing_can_be_said_of_it() {
    let dev = Dev::start(1);
    let session = dev.run(&["session", "open", "--ttl", "2s"]).object();
    let handle = session["session"].as_str().unwrap();
    let mut command = dev.command(&["session", "keep-alive", handle]);
    let mut keeping = command.stdout(full()).stderr(full()).spawn().unwrap();
    let ended = ends_within(&mut keeping, Duration::from_secs(5));
    let sessions = dev.run(&["session", "list"]).objects().len();
    keeping.kill().ok();
    keeping.wait().unwrap();
    assert_eq!((ended, sessions), (None, 1));
}
