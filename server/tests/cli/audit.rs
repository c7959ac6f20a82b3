//! `audit`: what operators did, as a command and as a node's file show it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringfence_proto::v1::access_change::Change;
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::{AccessChange, ChangeAccessRequest, GetAccessRequest};
use ringfence_testkit::ports::Port;
use rustix::process::Signal;
use serde_json::Value;
use tonic::transport::Channel;

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
            .all(|act| act["principal"] == "local" && act["proven_by"] == 1)
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

/// The whole lines of files, in order.
fn written(files: &[&Path]) -> Vec<Value> {
    let texts = files.iter().map(std::fs::read_to_string);
    let texts: Vec<String> = texts.map(Result::unwrap_or_default).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What the acts of these lines did, and how many lines say that some are missing.
fn acts_of(lines: &[Value]) -> (Vec<String>, usize) {
    let of = |kind: &'static str| lines.iter().filter(move |line| line["kind"] == kind);
    let acts = of("ACT").map(|line| line["act"].as_str().unwrap().to_owned());
    (acts.collect(), of("MISSED").count())
}

/// Bans a principal, which is an act, and waits until these files have it.
fn ban(node: &Node, who: &str, files: &[&Path]) -> String {
    let who = format!("token:{who}");
    node.local(&["access", "ban", &who]).object();
    let act = format!("access: ban {who}");
    await_that("the act is written", || {
        acts_of(&written(files)).0.contains(&act)
    });
    act
}

fn ends(node: &mut Node, how: Signal) {
    signal(pid(&node.process), how);
    node.process.wait().unwrap();
}

#[test]
fn an_act_is_written_to_stdout_once_however_often_the_node_starts() {
    let flags = ["--audit-log", "-"];
    let mut node = Node::start(&flags);
    let out = node.dir.path().join("out");
    let mut expected = Vec::new();
    for (who, how) in [
        ("a", Signal::TERM),
        ("b", Signal::TERM),
        ("c", Signal::KILL),
    ] {
        expected.push(ban(&node, who, &[&out]));
        // What was written is noted a moment later.
        let noted = node.dir.path().join("data/audit.position");
        let newest = written(&[&out])
            .iter()
            .rev()
            .find_map(|line| line["index"].as_u64());
        await_that("it is noted", || {
            let text = std::fs::read_to_string(&noted).unwrap_or_default();
            serde_json::from_str::<Value>(&text)
                .is_ok_and(|noted| noted["index"].as_u64() == newest)
        });
        ends(&mut node, how);
        node.start_again(&flags);
    }
    expected.push(ban(&node, "d", &[&out]));
    assert_eq!(acts_of(&written(&[&out])), (expected, 0));
}

#[test]
fn an_act_is_written_once_though_its_file_is_rotated_and_the_node_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let [path, first, second, third] =
        ["audit.jsonl", "audit.1", "audit.2", "audit.3"].map(|name| folder.path().join(name));
    let all = [&*first, &*second, &*third, &*path];
    let flags = ["--audit-log", path.to_str().unwrap()];
    let mut node = Node::start(&flags);
    let mut expected = vec![ban(&node, "a", &all)];

    // Rotated in order, and started again before another act.
    std::fs::rename(&path, &first).unwrap();
    signal(pid(&node.process), Signal::HUP);
    await_that("the file is made again", || path.exists());
    ends(&mut node, Signal::TERM);
    node.start_again(&flags);
    expected.push(ban(&node, "b", &all));

    // Rotated without a word: the old file is written until the node starts again.
    std::fs::rename(&path, &second).unwrap();
    expected.push(ban(&node, "c", &all));
    assert!(!path.exists());
    ends(&mut node, Signal::TERM);
    node.start_again(&flags);
    expected.push(ban(&node, "d", &all));

    // Rotated while the node does not run.
    ends(&mut node, Signal::TERM);
    std::fs::rename(&path, &third).unwrap();
    node.start_again(&flags);
    expected.push(ban(&node, "e", &all));
    assert_eq!(acts_of(&written(&all)), (expected, 0));
    let own = written(&[&path]);
    assert_eq!(acts_of(&own).0, ["access: ban token:e"]);

    // The command shows an act as the file does, which adds the node that writes.
    let listed = node.local(&["audit", "--limit", "1"]).object();
    let mut line = own.into_iter().find(|line| line["kind"] == "ACT").unwrap();
    assert_eq!(line.as_object_mut().unwrap().remove("node"), Some(1.into()));
    assert_eq!(listed, line);
    assert_eq!(line["proven_by"], 1);
}

/// Makes so many acts, one entry each.
async fn act(node: &Node, acts: usize) {
    let channel = Channel::from_shared(format!("http://{}", node.client)).unwrap();
    let mut access = AccessClient::new(channel.connect().await.unwrap());
    let state = access
        .get_access(GetAccessRequest {})
        .await
        .unwrap()
        .into_inner();
    let mut index = state.access_index;
    for n in 0..acts {
        let who = format!("token:t{n}");
        let change = match n % 2 {
            0 => Change::Ban(who),
            _ => Change::Unban(format!("token:t{}", n - 1)),
        };
        let change = ChangeAccessRequest {
            cluster_id: state.cluster_id.clone(),
            based_on: index,
            changes: vec![AccessChange {
                change: Some(change),
            }],
        };
        index = access
            .change_access(change)
            .await
            .unwrap()
            .into_inner()
            .access_index;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_are_said_to_be_missing_when_they_are_and_only_then() {
    const ACTS: usize = 1_030;
    let flags = ["--audit-log", "-"];
    let mut node = Node::start(&flags);
    let out = node.dir.path().join("out");
    act(&node, ACTS).await;
    await_that("all are written", || {
        acts_of(&written(&[&out])).0.len() == ACTS
    });
    for _ in 0..2 {
        ends(&mut node, Signal::TERM);
        node.start_again(&flags);
        let last = ban(&node, "more", &[&out]);
        node.local(&["access", "unban", "token:more"]).object();
        let (acts, missed) = acts_of(&written(&[&out]));
        assert_eq!(missed, 0);
        assert!(acts.contains(&last));
    }
    await_that("the last is written", || {
        acts_of(&written(&[&out])).0.len() == ACTS + 4
    });
    let before = written(&[&out])
        .iter()
        .rev()
        .find_map(|line| line["index"].as_u64());

    ends(&mut node, Signal::TERM);
    node.start_again(&[]);
    act(&node, ACTS).await;
    ends(&mut node, Signal::TERM);
    node.start_again(&flags);
    // Four of those that are kept are of another principal, and written before.
    let total = ACTS + 4 + 1_020;
    await_that("those that are kept are written", || {
        acts_of(&written(&[&out])).0.len() == total
    });
    let lines = written(&[&out]);
    let missed: Vec<&Value> = lines
        .iter()
        .filter(|line| line["kind"] == "MISSED")
        .collect();
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert_eq!(missed[0]["after"].as_u64(), before);
    let at = lines
        .iter()
        .position(|line| line["kind"] == "MISSED")
        .unwrap();
    assert_eq!(missed[0]["before"], lines[at + 1]["index"]);
    assert_eq!(missed[0]["cluster"], lines[at + 1]["cluster"]);
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
