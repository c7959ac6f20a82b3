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
