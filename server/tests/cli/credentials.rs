//! What each command says to a caller whose credential is refused.

use std::path::Path;
use std::process::{Child, Stdio};

use crate::access::{Node, refused};
use crate::harness::{Said, await_that};

/// Those that ask nodes one by one, without the client crate, say so alike.
#[test]
fn each_command_says_that_a_credential_is_refused() {
    let node = Node::start(&[]);
    node.local(&["access", "mode", "enforced"]).object();
    let bad = node.file("bad", "rft_7_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let session = "1.0b0102030405060708090a0b0c0d0e0f";
    let commands = [
        "lease acquire a",
        "lease get a",
        "lease list",
        "lease watch",
        "lease release a 5 --session HANDLE",
        "lease transfer a 5 --session HANDLE",
        "lease revoke a 5 --reason x",
        "lease history a",
        "session open",
        "session keep-alive HANDLE",
        "session list",
        "session get 1",
        "session close HANDLE",
        "session evict 1 --reason x",
        "check a 5",
        "lock a -- true",
        "cluster status",
        "cluster members",
        "cluster promote 9",
        "cluster remove 9",
        "cluster transfer-leader 9",
        "cluster configure",
        "cluster configure --ttl-max 10m",
        "access grant token:x observe a/*",
        "access revoke token:x observe a/*",
        "access list",
        "access ban token:x",
        "access unban token:x",
        "access test --as token:x observe a",
        "access whoami",
        "access mode",
        "access limits",
        "access token list",
        "access token create x",
        "access token revoke x",
        "audit",
        "audit --follow",
        "bench cycle",
        "bench lock",
        "bench keepalive",
    ];
    let mut message = None;
    for command in commands {
        let command = command.replace("HANDLE", session);
        let arguments: Vec<&str> = command.split(' ').collect();
        let said = node.with_token(&bad, &arguments);
        let seen = (said.code, said.reason());
        assert_eq!(seen, (Some(77), "UNAUTHENTICATED".to_owned()), "{command}");
        let told = said.error()["message"].clone();
        assert_eq!(
            *message.get_or_insert_with(|| told.clone()),
            told,
            "{command}"
        );
        // What each node says is the answer of `cluster status`.
        if command != "cluster status" {
            assert_eq!(said.out, "", "{command}");
        }
    }
    let nodes = node.with_token(&bad, &["cluster", "status"]).objects();
    assert_eq!(nodes[0]["role"], "denied", "{nodes:?}");

    // What cannot be shown to any node is wrong before one is asked.
    let nowhere = Path::new("/nonexistent/token");
    for command in [["cluster", "status"], ["bench", "cycle"], ["lease", "list"]] {
        let said = node.with_token(nowhere, &command);
        refused(&said, 2, "INVALID_ARGUMENT");
    }
}

/// A holder that is refused further keep-alives, from the moment on when it is known to hold.
fn holder(node: &Node, name: &str, command: &[&str]) -> Child {
    let made = node.local(&["access", "token", "create", name]).object();
    let token = node.file(name, made["token"].as_str().unwrap());
    let mut command = node.asked(&node.client, command);
    let command = command.arg("--ttl=4s").env("RINGFENCE_TOKEN_FILE", token);
    let begun = node.dir.path().join(format!("{name}.begun"));
    let script = format!("echo > {}; exec sleep 60", begun.display());
    let command = command.args(["--", "sh", "-c", &script]);
    let holder = command.stderr(Stdio::piped()).spawn().unwrap();
    await_that("it holds", || begun.exists());
    holder
}

#[test]
fn a_lease_that_is_lost_for_its_holders_credential_is_lost_with_that_cause() {
    let node = Node::start(&["--access", "enforced"]);
    node.local(&["access", "grant", "token:*", "acquire", "jobs/*"])
        .object();
    let revoked = holder(&node, "revoked", &["lock", "jobs/a"]);
    let banned = holder(&node, "banned", &["lock", "jobs/b"]);
    node.local(&["access", "token", "revoke", "revoked"])
        .object();
    node.local(&["access", "ban", "token:banned"]).object();
    for (holder, cause) in [
        (revoked, "may be revoked"),
        (banned, "token:banned is banned"),
    ] {
        let said: Said = holder.wait_with_output().unwrap().into();
        assert_eq!(said.code, Some(76), "{said:?}");
        let lost = said.err.lines().find(|line| line.contains("is lost: "));
        let lost = lost.unwrap_or_else(|| panic!("{said:?}"));
        assert!(lost.contains("no keep-alive was acknowledged"), "{lost}");
        assert!(lost.contains(cause), "{lost}");
    }
}
