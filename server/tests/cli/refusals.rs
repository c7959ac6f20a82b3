//! What a caller without a right reads: who it was taken for, what it lacks, and how scripts tell.

use crate::access::{Node, refused};

#[test]
fn a_refusal_is_one_line_with_the_caller_and_the_rule_that_it_lacks() {
    let node = Node::start(&["--access", "enforced"]);
    let made = node.local(&["access", "token", "create", "ci"]).object();
    let token = node.file("ci.token", made["token"].as_str().unwrap());
    let lacks: [(&[&str], &str, &str, Option<&str>); 9] = [
        (
            &["lease", "get", "db"],
            "observe",
            "token:ci observe db",
            Some("db"),
        ),
        (
            &["lease", "list"],
            "observe",
            "token:ci observe *",
            Some("*"),
        ),
        (
            &["lease", "acquire", "db"],
            "acquire",
            "token:ci acquire db",
            Some("db"),
        ),
        (
            &["lease", "revoke", "db", "7", "--reason", "x"],
            "revoke",
            "token:ci revoke db",
            Some("db"),
        ),
        (
            &["session", "list"],
            "observe",
            "token:ci observe *",
            Some("*"),
        ),
        (
            &["cluster", "configure", "--ttl-max", "10m"],
            "configure",
            "token:ci configure",
            None,
        ),
        (&["access", "list"], "admin", "token:ci admin", None),
        (
            &["access", "test", "--as", "token:x", "admin"],
            "admin",
            "token:ci admin",
            None,
        ),
        (&["access", "mode", "off"], "admin", "token:ci admin", None),
    ];
    for (command, verb, rule, names) in lacks {
        let said = node.with_token(&token, command);
        refused(&said, 77, "PERMISSION_DENIED");
        let error = said.error();
        let seen = ["principal", "verb", "rule", "names"].map(|key| error[key].as_str());
        assert_eq!(
            seen,
            [Some("token:ci"), Some(verb), Some(rule), names],
            "{command:?}"
        );

        let mut people = node.asked(&node.client, command);
        let output = people.env("RINGFENCE_TOKEN_FILE", &token).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let first = text.lines().next().unwrap();
        // As a shell takes it.
        let typed = rule.replace('*', "'*'");
        assert_eq!(output.status.code(), Some(77), "{text}");
        assert!(
            first.starts_with("error: no rule allows token:ci to "),
            "{text}"
        );
        assert!(
            first.ends_with(&format!("ringfence access grant {typed}")),
            "{text}"
        );
        assert!(text.contains("access whoami"), "{text}");
    }
    // Any lease does for a session, so no rule for all of them is named.
    let said = node.with_token(&token, &["session", "open"]);
    refused(&said, 77, "PERMISSION_DENIED");
    let message = said.error()["message"].to_string();
    assert!(
        message.contains("access grant token:ci acquire NAMES") && !message.contains('*'),
        "{message}"
    );
    // A caller learns who it is and what it may do itself, unless it is banned.
    let own = node.with_token(&token, &["access", "test", "observe", "db"]);
    assert_eq!(own.code, Some(1), "{own:?}");
    node.local(&["access", "grant", "token:ci", "acquire", "db"])
        .object();
    let own = node.with_token(&token, &["access", "test", "observe", "db"]);
    assert_eq!(
        (own.code, own.object()["rule"]["verb"].as_str()),
        (Some(0), Some("acquire"))
    );
    node.with_token(&token, &["lease", "get", "db"]);
    node.local(&["access", "ban", "token:ci"]).object();
    for command in [
        &["access", "whoami"][..],
        &["access", "test", "observe", "db"],
    ] {
        refused(&node.with_token(&token, command), 77, "PERMISSION_DENIED");
    }
    node.local(&["access", "token", "revoke", "ci"]).object();
    let revoked = node.with_token(&token, &["access", "whoami"]);
    refused(&revoked, 77, "UNAUTHENTICATED");
}

/// It lives on, and no rule makes it the caller's: `session close` has always said so.
#[test]
fn a_living_session_of_another_principal_is_called_that_by_each_command() {
    let node = Node::start(&["--access", "enforced"]);
    let caller = |name: &str, verb: &str, names: &str| {
        let made = node.local(&["access", "token", "create", name]).object();
        let principal = format!("token:{name}");
        node.local(&["access", "grant", &principal, verb, names])
            .object();
        node.file(name, made["token"].as_str().unwrap())
    };
    let owner = caller("owner", "acquire", "own/*");
    let strangers = [
        caller("thief", "acquire", "thief/*"),
        caller("observer", "observe", "*"),
    ];
    let held = ["lease", "acquire", "own/held", "--ttl", "60s"];
    let held = node.with_token(&owner, &held).object();
    let (handle, token) = (held["session"].as_str().unwrap(), held["token"].to_string());
    let commands: [&[&str]; 6] = [
        &["session", "close", handle],
        &["session", "keep-alive", handle, "--once"],
        &["session", "keep-alive", handle],
        &["lease", "release", "own/held", &token, "--session", handle],
        &["lease", "transfer", "own/held", &token, "--session", handle],
        &["lease", "acquire", "thief/x", "--session", handle],
    ];
    for stranger in &strangers {
        for command in commands {
            let said = node.with_token(stranger, command);
            refused(&said, 77, "PERMISSION_DENIED");
            let error = said.error();
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("opened by another principal"),
                "{command:?}: {message}"
            );
            assert!(!message.contains("access grant"), "{command:?}: {message}");
        }
    }
    // Who is banned reads that, and not whose session it is.
    node.local(&["access", "ban", "token:observer"]).object();
    let said = node.with_token(&strangers[1], commands[1]);
    refused(&said, 77, "PERMISSION_DENIED");
    assert!(said.err.contains("is banned"), "{said:?}");
    let kept = node.with_token(&owner, &["session", "keep-alive", handle, "--once"]);
    assert_eq!(kept.object()["kind"], "LIVE");
    let released = node.with_token(&owner, commands[3]);
    assert_eq!(released.code, Some(0), "{released:?}");
}
