//! The commands that scripts are made of, against a running node.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use serde_json::Value;

use rustix::process::Signal;

use crate::harness::{Dev, Said, await_that, pid, signal};

fn token(object: &Value) -> String {
    object["token"].as_u64().unwrap().to_string()
}

fn handle(object: &Value) -> String {
    object["session"].as_str().unwrap().to_owned()
}

#[track_caller]
fn refused(said: &Said, code: i32, reason: &str) {
    assert_eq!(
        (said.code, said.reason().as_str()),
        (Some(code), reason),
        "{said:?}"
    );
    assert_eq!(said.out, "");
}

#[test]
fn a_script_acquires_checks_and_releases() {
    let dev = Dev::start(1);

    let granted = dev
        .run(&["lease", "acquire", "jobs/a", "--identity", "alice"])
        .object();
    assert_eq!(
        (&granted["name"], &granted["ttl_ms"]),
        (&"jobs/a".into(), &15_000.into())
    );
    let (token, session) = (token(&granted), handle(&granted));

    let lease = dev.run(&["lease", "get", "jobs/a"]).object();
    assert_eq!(
        (&lease["holder"], &lease["token"]),
        (&"alice".into(), &granted["token"])
    );
    let check = dev.run(&["check", "jobs/a", &token]).object();
    assert_eq!(check["verdict"], "CURRENT");
    refused(&dev.run(&["lease", "acquire", "jobs/a"]), 1, "HELD");
    refused(
        &dev.run(&["lease", "acquire", "jobs/a", "--wait", "100ms"]),
        75,
        "WAIT_TIMEOUT",
    );

    let release = ["lease", "release", "jobs/a", &token, "--session", &session];
    assert_eq!(dev.run(&release).object()["cause"], "RELEASED");
    refused(&dev.run(&release), 1, "STALE_TOKEN");
    let ended = dev.run(&["check", "jobs/a", &token]);
    assert_eq!(
        (ended.code, &ended.objects()[0]["verdict"]),
        (Some(1), &"ENDED".into())
    );

    let again = dev
        .run(&["lease", "acquire", "jobs/a", "--session", &session])
        .object();
    assert_eq!(again["session"], granted["session"]);
    let superseded = dev.run(&["check", "jobs/a", &token]);
    assert_eq!(superseded.code, Some(1));
    let verdict = &superseded.objects()[0];
    assert_eq!(
        (&verdict["verdict"], &verdict["newest"]),
        (&"SUPERSEDED".into(), &again["token"])
    );
    let unknown = dev.run(&["check", "jobs/a", "4611686018427387904"]);
    assert_eq!(
        (unknown.code, &unknown.objects()[0]["verdict"]),
        (Some(1), &"UNKNOWN".into())
    );
}

#[test]
fn a_holder_hands_over_to_one_that_waits() {
    let dev = Dev::start(1);
    let held = dev
        .run(&["lease", "acquire", "a/b", "--identity", "alice"])
        .object();
    let waits = [
        "lease",
        "acquire",
        "a/b",
        "--identity",
        "bob",
        "--wait",
        "30s",
    ];
    let (token, session) = (token(&held), handle(&held));
    let transfer = ["lease", "transfer", "a/b", &token, "--session", &session];
    refused(&dev.run(&transfer), 1, "NOT_WAITING");

    let waiter = dev.command(&waits).spawn().unwrap();
    await_that("bob waits", || {
        dev.run(&["lease", "get", "a/b"]).object()["waiters"] == 1
    });
    let handed = dev.run(&transfer).object();
    let got = Said::from(waiter.wait_with_output().unwrap()).object();

    assert_eq!(
        (&got["token"], &got["session_number"]),
        (&handed["token"], &handed["session_number"])
    );
    assert!(got["token"].as_u64() > held["token"].as_u64());
}

#[test]
fn an_operator_sees_and_ends_grants() {
    let dev = Dev::start(1);
    let mut watch = dev
        .command(&["lease", "watch", "ops/", "--lines", "3"])
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&told.next().unwrap().unwrap()).unwrap();
    let first = dev.run(&["lease", "acquire", "ops/first"]).object();
    // Present or granted, depending on which of the two came first.
    assert_eq!(next()["token"], first["token"]);

    let granted = dev
        .run(&["lease", "acquire", "ops/a", "--data", "10.0.0.1:80"])
        .object();
    let event = next();
    assert_eq!(
        (&event["kind"], &event["token"]),
        (&"GRANTED".into(), &granted["token"])
    );
    assert_eq!(event["data"], "10.0.0.1:80");
    let revoke = [
        "lease",
        "revoke",
        "ops/a",
        &token(&granted),
        "--reason",
        "drill",
        "--operator",
        "me",
    ];
    assert_eq!(dev.run(&revoke).object()["cause"], "REVOKED");
    let event = next();
    assert_eq!(
        (&event["kind"], &event["cause"]),
        (&"ENDED".into(), &"REVOKED".into())
    );
    assert_eq!(
        (&event["operator"], &event["reason"]),
        (&"me".into(), &"drill".into())
    );
    assert_eq!(watch.wait().unwrap().code(), Some(0));

    let names = dev.run(&["lease", "list", "ops/"]).objects();
    let names: Vec<&str> = names
        .iter()
        .map(|lease| lease["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ops/a", "ops/first"]);
    let history = dev.run(&["lease", "history", "ops/a"]).objects();
    assert_eq!(
        (&history[0]["token"], &history[0]["cause"]),
        (&granted["token"], &"REVOKED".into())
    );
    refused(&dev.run(&["lease", "get", "ops/none"]), 1, "NOT_FOUND");
    refused(&dev.run(&["lease", "history", "ops/none"]), 1, "NOT_FOUND");
}

#[test]
fn a_session_lives_as_long_as_somebody_keeps_it_alive() {
    let dev = Dev::start(1);
    let opened = dev
        .run(&["session", "open", "--ttl", "20s", "--identity", "alice"])
        .object();
    let (session, number) = (handle(&opened), opened["session_number"].to_string());

    let kept = dev
        .run(&["session", "keep-alive", &session, "--once"])
        .object();
    assert_eq!(
        (&kept["kind"], &kept["ttl_ms"]),
        (&"LIVE".into(), &20_000.into())
    );
    let listed = dev.run(&["session", "list"]).object();
    assert_eq!(
        (&listed["holder"], &listed["leases"]),
        (&"alice".into(), &Value::Null)
    );
    dev.run(&["lease", "acquire", "s/a", "--session", &session])
        .object();
    let shown = dev.run(&["session", "get", &number]).object();
    assert_eq!(shown["leases"][0]["name"], "s/a");

    let wrong = format!("{number}.000102030405060708090a0b0c0d0e0f");
    refused(
        &dev.run(&["session", "keep-alive", &wrong, "--once"]),
        1,
        "WRONG_SECRET",
    );
    assert_eq!(
        dev.run(&["session", "close", &session]).object()["cause"],
        "CLOSED"
    );
    assert_eq!(
        dev.run(&["session", "close", &session]).object()["cause"],
        "CLOSED"
    );
    refused(
        &dev.run(&["session", "keep-alive", &session, "--once"]),
        1,
        "SESSION_EXPIRED",
    );
    refused(&dev.run(&["session", "get", &number]), 1, "NOT_FOUND");
    let evict = ["session", "evict", &number, "--reason", "drill"];
    refused(&dev.run(&evict), 1, "NOT_FOUND");
}

/// Others keep the session alive: what it still waited for would be granted to no client.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "nothing is waited for: it must not end while it has no answer"
)]
fn who_is_interrupted_in_the_queue_of_a_session_of_others_has_left_it() {
    let dev = Dev::start(1);
    let opened = dev.run(&["session", "open", "--ttl", "1m"]).object();
    let (session, number) = (handle(&opened), opened["session_number"].to_string());
    dev.run(&["lease", "acquire", "q/a", "--ttl", "1m"])
        .object();
    let acquire = ["lease", "acquire", "q/a", "--wait", "1m", "--session"];
    let mut waiting = dev
        .command(&[&acquire[..], &[&session]].concat())
        .spawn()
        .unwrap();
    let waits = || dev.run(&["session", "get", &number]).object()["waits"].clone();
    await_that("it waits", || waits() == 1);

    // The node answers nothing for a while.
    let node = dev.pids()[0];
    signal(node, Signal::STOP);
    signal(pid(&waiting), Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    let early = waiting.try_wait().unwrap();
    signal(node, Signal::CONT);

    assert_eq!(early, None, "it has ended before it was taken back");
    let said: Said = waiting.wait_with_output().unwrap().into();
    refused(&said, 130, "INTERRUPTED");
    assert_eq!(waits(), 0);
}

#[test]
fn a_session_that_ends_is_told_to_who_keeps_it_alive() {
    let dev = Dev::start(1);
    let opened = dev.run(&["session", "open", "--ttl", "3s"]).object();
    let number = opened["session_number"].to_string();
    let mut keeper = dev
        .command(&["session", "keep-alive", &handle(&opened)])
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(keeper.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("LIVE"), "{first}");

    let evicted = dev
        .run(&["session", "evict", &number, "--reason", "drill"])
        .object();
    assert_eq!(evicted["cause"], "EVICTED");

    refused(
        &Said::from(keeper.wait_with_output().unwrap()),
        1,
        "SESSION_EXPIRED",
    );
}

#[test]
fn an_operator_looks_at_the_cluster_and_sets_it() {
    let dev = Dev::start(1);

    let status = dev.run(&["cluster", "status"]).object();
    assert_eq!(
        (&status["role"], &status["leader"]),
        (&"leader".into(), &1.into())
    );
    let member = dev.run(&["cluster", "members"]).object();
    assert_eq!(
        (&member["name"], &member["role"]),
        (&"n1".into(), &"leader".into())
    );

    let before = dev.run(&["cluster", "configure"]).object();
    assert_eq!(before["ttl_max_ms"], 300_000);
    let after = dev
        .run(&["cluster", "configure", "--ttl-max", "10m"])
        .object();
    assert_eq!(
        (&after["ttl_max_ms"], &after["ttl_min_ms"]),
        (&600_000.into(), &before["ttl_min_ms"])
    );
    assert_eq!(dev.run(&["cluster", "configure"]).object(), after);
    refused(
        &dev.run(&["cluster", "configure", "--ttl-max", "25h"]),
        2,
        "INVALID_ARGUMENT",
    );
    refused(&dev.run(&["cluster", "remove", "n9"]), 1, "NOT_FOUND");
    refused(
        &dev.run(&["session", "open", "--ttl", "11m"]),
        2,
        "INVALID_ARGUMENT",
    );
}

#[test]
fn a_revoked_holder_is_refused_and_the_next_is_served_when_it_may() {
    let dev = Dev::start(1);
    let held = dev
        .run(&["lease", "acquire", "a/b", "--ttl", "1m"])
        .object();
    let (old, session) = (token(&held), handle(&held));
    let revoke = ["lease", "revoke", "a/b", &old, "--reason", "drill"];

    let revoked = dev.run(&revoke).object();
    assert_eq!(revoked["cause"], "REVOKED");
    // Its holder may still believe: no client is granted it for its TTL, unless it says that it
    // knows.
    refused(&dev.run(&["lease", "acquire", "a/b"]), 1, "REVOKING");
    // A repeated revoke is harmless, and is answered as the first one was.
    assert_eq!(dev.run(&revoke).object()["cause"], "REVOKED");
    let release = ["lease", "release", "a/b", &old, "--session", &session];
    refused(&dev.run(&release), 1, "STALE_TOKEN");
    let ended = dev.run(&["check", "a/b", &old]);
    assert_eq!(ended.objects()[0]["verdict"], "ENDED");

    let next = dev
        .run(&["lease", "acquire", "c/d", "--ttl", "1m"])
        .object();
    let revoke = ["lease", "revoke", "c/d", &token(&next), "--reason", "x"];
    dev.run(&[&revoke[..], &["--now"]].concat()).object();
    let taken = dev.run(&["lease", "acquire", "c/d"]).object();
    assert!(taken["token"].as_u64() > next["token"].as_u64());
}
