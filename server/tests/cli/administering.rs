//! Who administers: to reach the client port is not enough, and what a caller says of itself proves
//! nothing.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::access::Node;
use crate::harness::{Said, await_that};

/// The only record of a lease whose grant has ended.
fn ended(node: &Node, name: &str) -> Value {
    await_that("the history has the end", || {
        let told = node.local(&["lease", "history", name]);
        told.code == Some(0) && !told.objects()[0]["cause"].is_null()
    });
    node.local(&["lease", "history", name]).objects().remove(0)
}

#[test]
fn who_reaches_the_client_port_alone_evicts_revokes_configures_and_removes_nothing() {
    let node = Node::start(&[]);
    let made = node
        .local(&["access", "token", "create", "holder"])
        .object();
    let holder = node.file("holder.token", made["token"].as_str().unwrap());
    let made = node.local(&["access", "token", "create", "ops"]).object();
    let ops = node.file("ops.token", made["token"].as_str().unwrap());
    let granted: [&[&str]; 2] = [
        &["token:holder", "acquire", "jobs/*"],
        &["token:ops", "revoke", "jobs/*"],
    ];
    for rule in granted {
        node.local(&[&["access", "grant"], rule].concat()).object();
    }
    node.local(&["access", "grant", "local", "observe", "*"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();
    let held = node
        .with_token(&holder, &["lease", "acquire", "jobs/a"])
        .object();
    let token = held["token"].to_string();
    let session = node.local(&["session", "list"]).object()["session_number"].to_string();
    let settings = node.local(&["cluster", "configure"]).object();

    let denied = |said: &Said| {
        let seen = (said.code, said.reason());
        assert_eq!(seen, (Some(77), "PERMISSION_DENIED".to_owned()), "{said:?}");
    };
    let as_the_head = ["--reason", "r", "--operator", "ceo@bank"];
    let evict = [&["session", "evict", &session], &as_the_head[..]].concat();
    let revoke = [
        &["lease", "revoke", "jobs/a", &token, "--now"],
        &as_the_head[..],
    ]
    .concat();
    let configure = ["cluster", "configure", "--ttl-max", "2s"];
    let remove = ["cluster", "remove", "n1"];
    for asked in [&evict[..], &revoke, &configure, &remove] {
        denied(&node.run(asked));
        // A holder is no operator either.
        denied(&node.with_token(&holder, asked));
    }
    let lease = node.local(&["lease", "get", "jobs/a"]).object();
    assert_eq!(lease["token"], held["token"], "{lease}");
    assert_eq!(node.local(&["cluster", "configure"]).object(), settings);
    assert_eq!(node.run(&["cluster", "members"]).objects().len(), 1);

    // Who may revoke says who it is, and stands there as who it was proven to be.
    let revoked = node.with_token(&ops, &revoke);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let end = ended(&node, "jobs/a");
    assert_eq!(end["operator"], "token:ops (ceo@bank)", "{end}");
    let acts = node.local(&["audit"]).objects();
    let act = acts
        .iter()
        .find(|act| act["act"].as_str().unwrap().starts_with("lease revoke"));
    assert_eq!(act.unwrap()["principal"], "token:ops", "{acts:?}");
    assert_eq!(
        acts.iter()
            .filter(|act| act.to_string().contains("ceo"))
            .count(),
        1
    );
}

#[test]
fn who_may_revoke_evicts_and_needs_no_right_to_look_at_sessions() {
    let node = Node::start(&[]);
    let credential = |name: &str| {
        let made = node.local(&["access", "token", "create", name]).object();
        node.file(name, made["token"].as_str().unwrap())
    };
    let [ops, holder] = ["ops", "holder"].map(credential);
    for rule in [
        ["token:ops", "revoke", "jobs/*"],
        ["token:holder", "acquire", "jobs/*"],
        ["local", "observe", "*"],
    ] {
        node.local(&[&["access", "grant"], &rule[..]].concat())
            .object();
    }
    node.local(&["access", "mode", "enforced"]).object();
    let acquire = ["lease", "acquire", "jobs/a", "--ttl", "1m"];
    node.with_token(&holder, &acquire).object();
    let session = node.local(&["session", "list"]).object()["session_number"].to_string();

    let evict = ["session", "evict", &session, "--reason", "its host is gone"];
    // What is not seen is not claimed: the session may have ended before.
    for cause in ["it lives", "it has ended"] {
        let evicted = node.with_token(&ops, &evict);
        assert_eq!(evicted.code, Some(0), "{cause}: {evicted:?}");
        assert_eq!(evicted.object()["cause"], Value::Null, "{cause}");
    }
    assert_eq!(ended(&node, "jobs/a")["cause"], "EVICTED");
    let refused = node.with_token(&holder, &evict);
    assert_eq!(refused.code, Some(77), "{refused:?}");
}

/// A refused revoke of this lease as each face of a node words it: to programs, to people, in HTTP.
fn refused_revoke(node: &Node, credential: &Path, name: &str) -> [String; 3] {
    let revoke = ["lease", "revoke", name, "99", "--reason", "r"];
    let to_people = node
        .asked(&node.client, &revoke)
        .env("RINGFENCE_TOKEN_FILE", credential)
        .output()
        .unwrap();
    let to_people = Said::from(to_people);
    let to_programs = node.with_token(credential, &revoke);
    let codes = [&to_people, &to_programs].map(|said| said.code);
    assert_eq!(codes, [Some(1); 2], "{to_people:?} {to_programs:?}");
    let token = std::fs::read_to_string(credential).unwrap();
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "10", "--json"])
        .arg(format!(r#"{{"name":"{name}","token":99,"reason":"r"}}"#))
        .arg("-H")
        .arg(format!("authorization: Bearer {token}"))
        .arg(format!("http://{}/v1/revoke", node.client))
        .output()
        .expect("the tests need curl");
    let in_http = String::from_utf8(output.stdout).unwrap();
    assert!(in_http.contains("STALE_TOKEN"), "{in_http}");
    [to_programs.err, to_people.err, in_http]
}

#[test]
fn a_refused_revoke_names_the_token_in_force_to_who_may_read_the_lease_alone() {
    let node = Node::start(&[]);
    let credential = |name: &str| {
        let made = node.local(&["access", "token", "create", name]).object();
        node.file(name, made["token"].as_str().unwrap())
    };
    let [ops, lead] = ["ops", "lead"].map(credential);
    for rule in [
        ["token:ops", "revoke", "jobs/*"],
        ["token:lead", "revoke", "jobs/*"],
        ["token:lead", "observe", "jobs/*"],
        ["token:lead", "acquire", "jobs/*"],
    ] {
        node.local(&[&["access", "grant"], &rule[..]].concat())
            .object();
    }
    node.local(&["access", "mode", "enforced"]).object();
    let acquire = ["lease", "acquire", "jobs/held"];
    node.with_token(&lead, &acquire).object();

    let [held, absent] = ["jobs/held", "jobs/absent"].map(|name| {
        let said = refused_revoke(&node, &ops, name);
        said.map(|said| said.replace(name, "NAME"))
    });
    assert_eq!(held, absent, "to revoke is none to read");
    for said in refused_revoke(&node, &lead, "jobs/held") {
        assert!(said.contains("it is held with token 1;"), "{said}");
    }
}
