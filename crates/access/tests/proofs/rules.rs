//! What a proven name is allowed by rules of the cluster: its own rules, and no others.

use ringfence_access::IssuerKind;
use ringfence_core::snapshot::Record;
use ringfence_core::{
    Access, AccessRecord, LeaseName, Mode, NamePattern, PrincipalLimits, PrincipalPattern, Rule,
    Scope, StateMachine, Verb,
};
use serde_json::json;

use crate::support::{SigningKey, Site, claims, claims_but, jwks};

/// The rights of a cluster with these rules: principals, and names that they may acquire.
fn access(rules: &[(&str, &str)]) -> Access {
    let mode = AccessRecord::Mode {
        mode: Mode::Enforced,
        limits: PrincipalLimits::default(),
        set_at: 1,
    };
    let rules = rules.iter().map(|(principals, names)| {
        AccessRecord::Rule(Rule {
            principals: PrincipalPattern::parse(principals).unwrap(),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse(names).unwrap()),
        })
    });
    let rights = std::iter::once(mode).chain(rules).map(Record::Access);
    let mut empty = StateMachine::new();
    empty.skip(1);
    let records: Vec<Record> = empty.freeze().records().chain(rights).collect();
    let machine = StateMachine::restore(records).unwrap();
    machine.freeze().access().clone()
}

fn may(access: &Access, principal: &str, name: &str) -> bool {
    let name = LeaseName::parse(name).unwrap();
    access
        .rule(principal, Verb::Acquire, Scope::Name(&name))
        .is_some()
}

#[test]
fn attack_9_a_pattern_covers_no_neighbour() {
    let access = access(&[
        ("jwt:corp:team-a/*", "team-a/*"),
        ("jwt:corp:alice", "alice"),
    ]);
    for (principal, name, allowed) in [
        ("jwt:corp:team-a/x", "team-a/x", true),
        ("jwt:corp:team-a/x/y", "team-a/x/y", true),
        ("jwt:corp:team-a/x", "team-ab/x", false),
        ("jwt:corp:team-a/x", "team-a", false),
        ("jwt:corp:team-ab/x", "team-a/x", false),
        ("jwt:corp:team-a", "team-a/x", false),
        ("jwt:corp:Team-A/x", "team-a/x", false),
        ("jwt:corp2:team-a/x", "team-a/x", false),
        ("jwt:cor:team-a/x", "team-a/x", false),
        ("sa:corp:team-a/x", "team-a/x", false),
        ("cert:uri:jwt:corp:team-a/x", "team-a/x", false),
        ("jwt:corp:alice", "alice", true),
        ("jwt:corp:alice2", "alice", false),
        ("jwt:corp:alic", "alice", false),
        ("jwt:corp:alice/", "alice", false),
    ] {
        assert_eq!(may(&access, principal, name), allowed, "{principal} {name}");
    }
    let under = |prefix| {
        access
            .rule("jwt:corp:team-a/x", Verb::Acquire, Scope::Prefix(prefix))
            .is_some()
    };
    assert!(under("team-a/") && under("team-a/b") && under("team-a/b/"));
    assert!(!under("team-a") && !under("team-") && !under("") && !under("team-ab/"));
}

#[test]
fn attack_9_patterns_end_behind_a_separator() {
    for wrong in ["team-a*", "team-*/x", "**", "team-a/**", "*/x", "team-a/*/"] {
        assert!(NamePattern::parse(wrong).is_err(), "{wrong}");
    }
    for wrong in [
        "jwt:corp:team-a*",
        "jwt:*:alice",
        "jwt:corp:**",
        "j*",
        "jwt*",
        "local*",
        "cert:u*",
        "jwt:corp:team a/*",
        "other:*",
    ] {
        assert!(PrincipalPattern::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn attack_9_a_proven_subject_meets_the_rules_of_its_own_name_alone() {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    let access = access(&[
        ("jwt:corp:admin", "a"),
        ("jwt:corp:team-a/*", "team-a/*"),
        ("jwt:corp:admin/*", "admin/*"),
        ("sa:corp:*", "sa/*"),
        ("token:*", "token/*"),
        ("local", "local"),
    ]);
    let granted = ["a", "team-a/x", "admin/x", "sa/x", "token/x", "local"];
    for (sub, names) in [
        ("admin", &["a"][..]),
        ("team-a/../admin", &["team-a/x"]),
        ("team-a/..", &["team-a/x"]),
        ("../admin", &[]),
        ("./admin", &[]),
        ("/admin", &[]),
        ("admin|x", &[]),
        ("x|admin", &[]),
        ("team-ab/x", &[]),
        ("sa:corp:team/x", &[]),
        ("token:ci", &[]),
        ("local", &[]),
        ("corp:admin", &[]),
        ("admin:", &[]),
    ] {
        let principal = site.principal(&key.token(&claims(sub)));
        let allowed = granted.iter().filter(|name| may(&access, &principal, name));
        assert_eq!(allowed.copied().collect::<Vec<_>>(), names, "{sub}");
    }
}

#[test]
fn attack_9_two_issuers_with_one_subject_meet_the_rules_of_their_own() {
    let (one, two) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::with(
        &[
            ("one", "https://one", IssuerKind::Jwt, jwks(&[&one])),
            ("one-b", "https://two", IssuerKind::Jwt, jwks(&[&two])),
        ],
        None,
    );
    let access = access(&[("jwt:one:alice", "exact"), ("jwt:one:*", "all/*")]);
    let first = site.principal(&one.token(&claims_but("iss", json!("https://one"))));
    let second = site.principal(&two.token(&claims_but("iss", json!("https://two"))));
    for name in ["exact", "all/x"] {
        assert!(may(&access, &first, name));
        assert!(!may(&access, &second, name));
    }
}

#[test]
fn attack_9_an_account_has_the_names_of_its_own_namespace_alone() {
    let key = SigningKey::ed25519("k");
    let site = Site::of_kubernetes(&key);
    let access = access(&[("sa:prod:*", "k8s/{namespace}/*")]);
    let account = |sub| site.principal(&key.token(&claims(sub)));
    let worker = account("system:serviceaccount:team-a:worker");
    assert!(may(&access, &worker, "k8s/team-a/x"));
    for other in [
        "k8s/team-ab/x",
        "k8s/team-a",
        "k8s/team/x",
        "team-a/x",
        "k8s/k8s/team-a/x",
    ] {
        assert!(!may(&access, &worker, other), "{other}");
    }
    let dots = account("system:serviceaccount:..:worker");
    assert!(!may(&access, &dots, "k8s/team-a/x"));
}
