//! Who administers: to reach the client port is not enough, and what a caller says of itself proves
//! nothing.

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
