//! No secret stands where other processes or people can read it: command lines, environments, logs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::access::Node;
use crate::calls::{ask, json_of};
use crate::harness::{await_that, pid};

/// The processes below this one, itself among them.
fn family(of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().unwrap_or_default();
            let parent = parent.split(' ').nth(1).and_then(|ppid| ppid.parse().ok());
            if parent.is_some_and(|parent| found.contains(&parent)) {
                found.insert(pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Asserts that no command line and no environment of these processes has it.
#[track_caller]
fn assert_hidden(secret: &str, of: i32) {
    for pid in family(of) {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{pid}/{file}");
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
}

#[track_caller]
fn assert_not_in(secret: &str, path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.contains(secret));
    assert_eq!(line, None, "{}", path.display());
}

/// The middle one of the three parts of a session's handle.
fn secret_of(handle: &str) -> String {
    let secret = handle.split('.').nth(1);
    secret.expect("NUMBER.SECRET.CLUSTER").to_owned()
}

#[test]
fn no_secret_stands_in_a_command_line_an_environment_or_a_log_at_trace_level() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let flags = ["--log=trace", "--audit-log", audit.to_str().unwrap()];
    let node = Node::start(&flags);
    let made = node
        .local(&["access", "token", "create", "deploy"])
        .object();
    let token = made["token"].as_str().unwrap().to_owned();
    let secret = token.splitn(3, '_').nth(2).unwrap().to_owned();
    let file = node.file("deploy.token", &token);
    node.local(&["access", "grant", "token:deploy", "acquire", "deploy/*"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();

    // A holder whose work runs as a child, and sees what it has to see and no more.
    let (begun, log) = (folder.path().join("begun"), folder.path().join("lock.log"));
    let script = format!("echo begun > {}; sleep 600", begun.display());
    let mut holder = node.asked(&node.client, &["lock", "deploy/web", "--token-file"]);
    let holder = holder.arg(&file).args(["--", "sh", "-c", &script]);
    let log_file = std::fs::File::create(&log).unwrap();
    let holder = holder
        .env("RINGFENCE_LOG", "trace")
        .env("RUST_LOG", "trace");
    let holder = holder
        .stdout(log_file.try_clone().unwrap())
        .stderr(log_file);
    let mut holder = holder.stdin(Stdio::null()).spawn().unwrap();
    await_that("the work has begun", || begun.exists());
    assert_hidden(&secret, pid(&holder));
    assert_hidden(&secret, pid(&node.process));

    // Sessions have secrets too; a command prints its own, for scripts, and logs none.
    let opened = node.with_token(&file, &["session", "open", "--ttl", "60s"]);
    let handle = opened.object()["session"].as_str().unwrap().to_owned();
    let session_secret = secret_of(&handle);
    assert_eq!(session_secret.len(), 32, "{handle}");
    let wrong = node.file("wrong.token", &format!("{}x", &token[..token.len() - 1]));
    let refused = node.with_token(&wrong, &["lease", "acquire", "deploy/db"]);
    assert_eq!(refused.code, Some(77), "{refused:?}");
    assert!(!refused.err.contains(&secret[..20]), "{refused:?}");
    // The same over HTTP: a handle that is good, one that is none, and one of the node's making.
    let keep = json!({ "session": handle });
    let kept = ask(&node, Some(&token), "POST", "/v1/keep-alive", &keep);
    assert_eq!(kept.status, 200, "{kept:?}");
    let malformed = json!({ "session": format!("{handle}0"), "name": "deploy/db", "token": 1 });
    let refused = ask(&node, Some(&token), "POST", "/v1/release", &malformed);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(!refused.body.contains(&session_secret), "{refused:?}");
    let wanted = json!({ "name": "deploy/db", "ttl": "60s" });
    let granted = ask(&node, Some(&token), "POST", "/v1/acquire", &wanted);
    let made = json_of(&granted)["session"].as_str().unwrap().to_owned();
    let made_secret = secret_of(&made);
    let listed = node.local(&["session", "list"]);
    assert!(!listed.out.contains(&session_secret), "{listed:?}");

    holder.kill().unwrap();
    holder.wait().unwrap();
    // The work ends with its holder; what the node logs of that stands there soon.
    let node_log = node.dir.path().join("log");
    await_that("the node logs at trace level", || {
        std::fs::read_to_string(&node_log).is_ok_and(|log| log.contains("TRACE"))
    });
    await_that("the acts are written", || {
        std::fs::read_to_string(&audit).is_ok_and(|log| log.contains("mode enforced"))
    });
    for hidden in [&secret[..20], &session_secret, &made_secret] {
        for path in [&node_log, &log, &audit] {
            assert_not_in(hidden, path);
        }
    }
}
