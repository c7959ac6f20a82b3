//! `access apply`: the rules of a file become those of the cluster, all or what is allowed in the end.

use serde_json::json;

use crate::access::{Node, refused, texts};

#[test]
fn a_file_of_rules_is_applied_in_parts_and_pruned() {
    let node = Node::start(&[]);
    node.local(&["access", "grant", "token:old", "observe", "*"])
        .object();
    node.local(&["access", "ban", "token:bad"]).object();
    // More than one entry may change.
    let mut rules = String::new();
    for n in 0..60 {
        rules.push_str(&format!(
            "[[rule]]\nprincipals = [\"token:t{n}\"]\nverb = \"acquire\"\nnames = \"team-{n}/*\"\n"
        ));
    }
    let file = node.file("rules.toml", &rules);
    let file = file.to_str().unwrap();

    let dry = node.local(&["access", "apply", "-f", file, "--prune", "--dry-run"]);
    let dry = dry.object();
    assert_eq!(texts(&dry["added"]).len(), 60);
    assert_eq!(texts(&dry["removed"]), ["token:old observe *"]);
    let list = || node.local(&["access", "list"]).object();
    assert_eq!(texts(&list()["rules"]), ["token:old observe *"]);

    node.local(&["access", "apply", "-f", file]).object();
    assert_eq!(texts(&list()["rules"]).len(), 61);
    node.local(&["access", "apply", "-f", file, "--prune"])
        .object();
    let after = list();
    assert_eq!(texts(&after["rules"]).len(), 60);
    assert_eq!(after["bans"], json!(["token:bad"]), "bans stay");
    let again = node.local(&["access", "apply", "-f", file, "--prune"]);
    let again = again.object();
    assert_eq!(
        (&again["added"], &again["removed"]),
        (&json!([]), &json!([]))
    );

    let wrong = node.file(
        "wrong.toml",
        "[[rule]]\nprincipals = \"*\"\nverb = \"own\"\n",
    );
    let said = node.local(&["access", "apply", "-f", wrong.to_str().unwrap()]);
    refused(&said, 2, "INVALID_ARGUMENT");
}

#[test]
fn rules_that_would_lock_their_author_out_are_refused_before_any_of_them_counts() {
    let node = Node::start(&[]);
    let made = node.local(&["access", "token", "create", "ops"]).object();
    let token = node.file("ops.token", made["token"].as_str().unwrap());
    node.local(&["access", "grant", "token:ops", "admin"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();
    // More than one entry may change, so the first part alone would be allowed.
    let rules: String = (0..60)
        .map(|n| {
            format!("[[rule]]\nprincipals = \"token:t{n}\"\nverb = \"observe\"\nnames = \"*\"\n")
        })
        .collect();
    let file = node.file("rules.toml", &rules);
    let apply = ["access", "apply", "-f", file.to_str().unwrap(), "--prune"];
    for more in [&["--dry-run"][..], &[]] {
        let said = node.with_token(&token, &[&apply, more].concat());
        refused(&said, 2, "INVALID_ARGUMENT");
        assert!(said.err.contains("another administrator"), "{said:?}");
    }
    let list = node.local(&["access", "list"]).object();
    assert_eq!(texts(&list["rules"]), ["token:ops admin -"]);
    // `local` needs no rule.
    node.local(&apply).object();
    let list = node.local(&["access", "list"]).object();
    assert_eq!(texts(&list["rules"]).len(), 60);
}
