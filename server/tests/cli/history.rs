//! `check-history` and `log dump`: the judge, and the log that it is shown.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ringfence_check::history::{
    Acquire, Checked, Header, Invoked, Op, Outcome, Record, Returned, Writer,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::harness::{Dev, Said, ringfence, run};

/// A history of the checkers' own tests.
fn example(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/check/tests");
    tests.join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_exit_code_is_the_verdict() {
    let valid = example("tricky/an_unanswered_acquire_was_granted.jsonl");
    let said = run(&["check-history", &valid]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("valid\n"), "{}", said.out);

    let invalid = example("bad/two_hold_at_once.jsonl");
    let said = run(&["check-history", &invalid]);
    assert_eq!(said.code, Some(1), "{said:?}");
    // Both operations, and when they were.
    for told in [
        "I6",
        "operation 3",
        "operation 4",
        "0.020000 s to 0.025000 s",
    ] {
        assert!(said.out.contains(told), "{told} is missing in {}", said.out);
    }

    for unknown in [
        &["check-history", &valid, "--states", "1"][..],
        &[
            "check-history",
            &example("tricky/a_guard_without_order.jsonl"),
            "--coverage",
        ],
    ] {
        let said = run(unknown);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.out.starts_with("unknown\n"), "{}", said.out);
    }
    let said = run(&["--json", "check-history", &invalid]);
    let object: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(object["verdict"], "invalid");
    assert_eq!(object["black_box"]["violations"][0]["rule"], "I6");
    assert_eq!(object["black_box"]["violations"][0]["lease"], "db");
}

#[test]
fn a_log_that_was_purged_gives_no_verdict_and_says_what_to_dump_instead() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("n1.log");
    let log = "{\"log\":{\"version\":1,\"node\":\"n1\",\"committed\":812}}\n\
               {\"entry\":{\"index\":811,\"term\":3}}\n{\"entry\":{\"index\":812,\"term\":3}}\n";
    fs::write(&dump, log).unwrap();
    let valid = example("tricky/an_unanswered_acquire_was_granted.jsonl");
    let log = dump.to_str().unwrap();

    let said = run(&["check-history", &valid, "--log", log]);

    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.out.starts_with("unknown\n"), "{}", said.out);
    for told in ["begins at entry 811", "purged", "--snapshot-log-bytes"] {
        assert!(said.out.contains(told), "{told} is missing in {}", said.out);
    }
    // What clients saw is judged all the same.
    assert!(said.out.contains("by what clients saw: valid"), "{said:?}");
    let invalid = example("bad/two_hold_at_once.jsonl");
    let said = run(&["check-history", &invalid, "--log", log]);
    assert_eq!(said.code, Some(1), "{said:?}");
}

#[test]
fn a_timeline_is_one_page_with_what_was_found_and_changes_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("run.html");
    let to = page.to_str().unwrap();
    let invalid = example("bad/a_stale_write_admitted.jsonl");

    let said = run(&["check-history", &invalid, "--timeline", to]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>"), "{text:.80}");
    for told in [
        "check-history a_stale_write_admitted.jsonl",
        "I1",
        "was admitted after",
    ] {
        assert!(text.contains(told), "{told} is not on the page");
    }
    // It needs nothing but itself.
    for outside in ["http://", "https://", "src=\"", "@import"] {
        assert!(!text.contains(outside), "{outside} is on the page");
    }

    // One that was there is replaced.
    let valid = example("tricky/an_unanswered_acquire_was_granted.jsonl");
    let said = run(&["check-history", &valid, "--timeline", to]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        !text.contains("was admitted after"),
        "the old page is there"
    );

    // Who wanted a page and got none learns it, whatever the verdict.
    let nowhere = dir.path().join("nowhere/run.html");
    let said = run(&[
        "check-history",
        &valid,
        "--timeline",
        nowhere.to_str().unwrap(),
    ]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("nowhere/run.html"), "{said:?}");
}

#[test]
fn a_file_that_is_no_history_ends_with_2_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.jsonl");
    let header = "{\"header\":{\"version\":1,\"recorder\":\"a\",\"rate_bound_ppm\":0}}\n";
    let cases = [
        ("", "no header"),
        ("once upon a time\n", "no header"),
        (&format!("{header}{{\"rumour\":1}}\n"), "line 2"),
        (
            &format!("{header}{{\"returned\":{{\"id\":1,\"t\":1,\"outcome\":\"closed\"}}}}\n"),
            "operation 1 never began",
        ),
    ];
    for (text, told) in cases {
        fs::write(&file, text).unwrap();
        let said = run(&["check-history", file.to_str().unwrap()]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.err.contains(told), "{told} is missing in {}", said.err);
    }
    let said = run(&["check-history", "/nowhere/history.jsonl"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

/// Time as a recorder takes it, in ns.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// A client that records what it received.
struct Recorder {
    dev: Dev,
    writer: Writer<File>,
    next: u64,
}

impl Recorder {
    /// Runs a command and records what it received.
    fn call(
        &mut self,
        arguments: &[&str],
        session: Option<u64>,
        op: Op,
        told: impl Fn(&Value) -> Outcome,
    ) -> Value {
        let t = now();
        let said: Said = self.dev.run(arguments);
        let object = said.objects().pop().unwrap();
        self.record(t, session, op, told(&object));
        object
    }

    fn record(&mut self, t: u64, session: Option<u64>, op: Op, outcome: Outcome) {
        let id = self.next;
        self.next += 1;
        let invoked = Invoked {
            id,
            t,
            client: 1,
            session,
            request: None,
            op,
        };
        let returned = Returned {
            id,
            t: now(),
            outcome,
            index: None,
        };
        self.writer.append(&Record::Invoked(invoked)).unwrap();
        self.writer.append(&Record::Returned(returned)).unwrap();
        self.writer.flush().unwrap();
    }
}

#[test]
fn the_log_of_a_stopped_node_confirms_what_its_client_saw() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let history = dir.path().join("history.jsonl");
    let mut recorder = Recorder {
        dev: Dev::start_with(1, &["--data-dir", data.to_str().unwrap()]),
        writer: Writer::create(&history, &Header::new("by hand")).unwrap(),
        next: 1,
    };

    let opened = recorder
        .dev
        .run(&["lease", "acquire", "jobs/first"])
        .object();
    let handle = opened["session"].as_str().unwrap().to_owned();
    let session = opened["session_number"].as_u64().unwrap();
    let lease = "jobs/a".to_owned();
    let ask = Acquire {
        lease: lease.clone(),
        wait_ms: None,
        lock_delay_ms: 0,
    };
    let granted = recorder.call(
        &["lease", "acquire", "jobs/a", "--session", &handle],
        Some(session),
        Op::Acquire(ask),
        |told| Outcome::Granted {
            token: told["token"].as_u64().unwrap(),
        },
    );
    let token = granted["token"].as_u64().unwrap();
    let check = Op::Check {
        lease: lease.clone(),
        token,
    };
    let text = token.to_string();
    let current = |_: &Value| Outcome::Checked(Checked::Current);
    recorder.call(&["check", "jobs/a", &text], None, check.clone(), current);
    let release = Op::Release {
        lease,
        token,
        close: false,
    };
    let arguments = ["lease", "release", "jobs/a", &text, "--session", &handle];
    recorder.call(&arguments, Some(session), release, |_| Outcome::Released);
    let ended = |_: &Value| Outcome::Checked(Checked::Ended);
    recorder.call(&["check", "jobs/a", &text], None, check.clone(), ended);

    let node = data_dir_of_a_node(&data);
    let running = run(&["log", "dump", "--data-dir", node.to_str().unwrap()]);
    assert_eq!(running.code, Some(2), "{running:?}");
    assert!(running.err.contains("in use"), "{}", running.err);
    recorder.dev.interrupt();

    let dump = dump(&node, dir.path());
    let history = history.to_str().unwrap();
    let judged = run(&["check-history", history, "--log", dump.to_str().unwrap()]);
    assert_eq!(judged.code, Some(0), "{judged:?}");
    assert!(
        judged.out.contains("2 operations found in the log"),
        "{}",
        judged.out
    );

    // A lie that only the log can tell from the truth: no client was granted this.
    let lie = Op::Acquire(Acquire {
        lease: "jobs/b".to_owned(),
        wait_ms: None,
        lock_delay_ms: 0,
    });
    let told = Outcome::Granted { token: token + 1 };
    recorder.record(now(), Some(session), lie, told);
    let judged = run(&["check-history", history, "--log", dump.to_str().unwrap()]);
    assert_eq!(judged.code, Some(1), "{judged:?}");
    assert!(
        judged.out.contains("it is not in the log"),
        "{}",
        judged.out
    );
}

fn data_dir_of_a_node(data: &Path) -> PathBuf {
    let mut entries = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = entries.find(|path| path.join("identity").exists());
    found.unwrap_or_else(|| panic!("no node in {}", data.display()))
}

fn dump(node: &Path, to: &Path) -> PathBuf {
    let path = to.join("n1.log");
    let mut command = ringfence();
    command.args(["log", "dump", "--data-dir", node.to_str().unwrap()]);
    command.stdout(File::create(&path).unwrap());
    let said = Said::from(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    path
}
