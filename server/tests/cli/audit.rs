//! `audit`: what operators did, as a command and as a node's file show it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::ports::Port;
use rustix::process::Signal;
use serde_json::Value;

use crate::access::Node;
use crate::harness::{Dev, Said, await_that, pid, ringfence, signal};

#[test]
fn operators_acts_are_listed_with_who_did_them_and_why() {
    let node = Node::start(&[]);
    assert_eq!(node.say(&["audit"]).out, "no acts\n");
    node.local(&["access", "grant", "token:a", "acquire", "a/*"])
        .object();
    let lease = node.run(&["lease", "acquire", "a/b"]).object();
    let token = lease["token"].to_string();
    let revoke = ["lease", "revoke", "a/b", &token, "--reason", "stuck"];
    let revoked = node.local(&[&revoke[..], &["--operator", "ann"]].concat());
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    node.local(&["access", "mode", "enforced"]).object();
    let denied = node.run(&["access", "ban", "token:b"]);
    assert_eq!(denied.code, Some(77));

    let denied = node.run(&["audit"]);
    assert_eq!(
        (denied.code, denied.reason().as_str()),
        (Some(77), "PERMISSION_DENIED")
    );
    let acts = node.local(&["audit"]);
    assert_eq!(acts.code, Some(0), "{acts:?}");
    let acts = acts.objects();
    let texts: Vec<&str> = acts
        .iter()
        .map(|act| act["act"].as_str().unwrap())
        .collect();
    let revoke = format!("lease revoke a/b#{token}");
    let expected = [
        "access: grant token:a acquire a/*",
        &revoke,
        "access: mode enforced",
    ];
    assert_eq!(texts, expected);
    assert!(
        acts.iter()
            .all(|act| act["principal"] == "local" && act["node"] == 1)
    );
    assert!(acts[1]["reason"].as_str().unwrap().contains("stuck"));

    let newest = node.local(&["audit", "--limit", "1"]).object();
    assert_eq!(newest, acts[2]);
    let first = acts[0]["index"].to_string();
    let second = node.local(&["audit", "--after", &first, "--limit", "1"]);
    assert_eq!(second.object(), acts[1]);
    let future = node.local(&["audit", "--after", "99999999"]);
    assert_eq!(
        (future.code, future.reason().as_str()),
        (Some(1), "POSITION_UNKNOWN")
    );
}

#[test]
fn acts_are_followed_past_a_change_of_leader() {
    let dev = Dev::start(3);
    let grant = |name: &str| {
        let done = dev.run(&["access", "grant", name, "observe", "*"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    };
    grant("token:first");
    let mut follower = dev.command(&["audit", "--follow"]).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let act: Value = serde_json::from_str(&line).unwrap();
        act["act"].as_str().unwrap().to_owned()
    };
    assert_eq!(next(), "access: grant token:first observe *");

    let leader = dev.ready["nodes"].as_array().unwrap().iter();
    let leader = leader
        .clone()
        .find(|node| node["name"] == dev.ready["leader"]);
    let leader = leader.unwrap()["pid"].as_i64().unwrap();
    signal(leader.try_into().unwrap(), Signal::KILL);
    grant("token:second");
    assert_eq!(next(), "access: grant token:second observe *");
    grant("token:third");
    assert_eq!(next(), "access: grant token:third observe *");

    signal(pid(&follower), Signal::INT);
    assert_eq!(follower.wait().unwrap().code(), Some(0));
}

/// The lines of a node's audit log, once one of them fulfils a condition.
fn lines_with(path: &std::path::Path, is_there: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut lines: Vec<Value> = Vec::new();
    await_that("the line", || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.lines().map(serde_json::from_str);
        lines = whole.filter_map(Result::ok).collect();
        lines.iter().any(&is_there)
    });
    lines
}

#[test]
fn a_node_writes_acts_and_samples_of_refusals_to_its_file_and_opens_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let node = Node::start(&["--audit-log", path.to_str().unwrap()]);
    node.local(&["access", "grant", "token:a", "observe", "*"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();
    let lines = lines_with(&path, |line| line["act"] == "access: mode enforced");
    assert_eq!(lines[0]["act"], "access: grant token:a observe *");
    assert!(
        lines
            .iter()
            .all(|line| line["kind"] == "ACT" && line["principal"] == "local")
    );
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    for _ in 0..5 {
        assert_eq!(node.run(&["lease", "get", "a"]).code, Some(77));
    }
    let bad = node.file("bad", "rft_7_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(node.with_token(&bad, &["lease", "get", "a"]).code, Some(77));
    let of = |lines: &[Value], reason: &str| {
        let lines = lines.iter().filter(|line| line["reason"] == reason);
        lines.cloned().collect::<Vec<_>>()
    };
    let lines = lines_with(&path, |line| line["reason"] == "UNAUTHENTICATED");
    let denied = of(&lines, "PERMISSION_DENIED");
    // One line for one principal and verb in ten seconds, which may end between two requests.
    assert!((1..=2).contains(&denied.len()), "{lines:?}");
    let count: u64 = denied
        .iter()
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, 5);
    let denied = &denied[0];
    assert_eq!(
        (&denied["principal"], &denied["what"], &denied["enforced"]),
        (&"anonymous".into(), &"observe".into(), &true.into())
    );
    let unproven = &of(&lines, "UNAUTHENTICATED")[0];
    assert_eq!(unproven["source"], "127.0.0.1");

    let rotated = folder.path().join("audit.1");
    std::fs::rename(&path, &rotated).unwrap();
    signal(pid(&node.process), Signal::HUP);
    await_that("the file is made again", || path.exists());
    node.local(&["access", "ban", "token:b"]).object();
    let lines = lines_with(&path, |line| line["act"] == "access: ban token:b");
    assert!(
        lines
            .iter()
            .all(|line| line["act"] != "access: mode enforced")
    );
}

#[test]
fn a_node_without_a_place_for_its_audit_log_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let nowhere = folder.path().join("nowhere/audit");
    let mut serve = ringfence();
    serve.args(["serve", "--data-dir", data.to_str().unwrap()]);
    for flag in ["--listen-client", "--listen-peer", "--listen-http"] {
        serve.args([flag, &Port::any().address().to_string()]);
    }
    let said: Said = serve
        .arg("--audit-log")
        .arg(&nowhere)
        .output()
        .unwrap()
        .into();
    assert_eq!(said.code, Some(71), "{said:?}");
    assert!(said.err.contains("--audit-log"), "{said:?}");
}
