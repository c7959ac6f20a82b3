//! Tokens of service accounts of Kubernetes.

use serde_json::{Value, json};

use crate::support::{SigningKey, Site, claims};

const WORKER: &str = "system:serviceaccount:team-a:worker";

fn site() -> (SigningKey, Site) {
    let key = SigningKey::rsa("rsa");
    let site = Site::of_kubernetes(&key);
    (key, site)
}

fn with_kubernetes(value: Value) -> Value {
    let mut claims = claims(WORKER);
    claims["kubernetes.io"] = value;
    claims
}

#[test]
fn a_service_account_is_named_by_cluster_namespace_and_name() {
    let (key, site) = site();
    let proven = site.prove(&key.token(&claims(WORKER))).unwrap();
    assert_eq!(proven.principal.as_str(), "sa:prod:team-a/worker");
    assert_eq!((proven.token, proven.pod), (None, None));
    let dotted = key.token(&claims("system:serviceaccount:a:b.c-9"));
    assert_eq!(site.principal(&dotted), "sa:prod:a/b.c-9");
}

#[test]
fn attack_9_other_forms_of_subjects_are_no_service_accounts() {
    let (key, site) = site();
    for sub in [
        "worker",
        "system:serviceaccount",
        "system:serviceaccount:",
        "system:serviceaccount::",
        "system:serviceaccount:team-a",
        "system:serviceaccount:team-a:",
        "system:serviceaccount::worker",
        "system:serviceaccount:team-a:worker:",
        "system:serviceaccount:team-a:worker:admin",
        "system:serviceaccount:team-a/x:worker",
        "system:serviceaccount:team-a:worker/admin",
        "system:serviceaccount:team-a:*",
        "system:serviceaccount:*:worker",
        "system:serviceaccount:../a:worker",
        "system:serviceaccount:Team-A:worker",
        "system:serviceaccount:team-a: worker",
        "system:serviceaccount:team-a:worker\0",
        " system:serviceaccount:team-a:worker",
        "System:ServiceAccount:team-a:worker",
        "system:node:node-1",
        "system:admin",
        "xsystem:serviceaccount:team-a:worker",
    ] {
        site.assert_refused(&key.token(&claims(sub)), "`sub` is no service account");
    }
    for (namespace, name) in [(256, 1), (1, 256), (64, 254), (300, 300)] {
        let (namespace, name) = ("n".repeat(namespace), "s".repeat(name));
        let sub = format!("system:serviceaccount:{namespace}:{name}");
        assert!(site.prove(&key.token(&claims(&sub))).is_err(), "{sub}");
    }
}

#[test]
fn a_token_that_is_bound_to_a_pod_names_it() {
    let (key, site) = site();
    let bound = json!({
        "namespace": "team-a",
        "node": { "name": "node-1", "uid": "n" },
        "pod": { "name": "worker-0", "uid": "0b7f-1" },
        "serviceaccount": { "name": "worker", "uid": "s" },
        "warnafter": 1,
    });
    let proven = site.prove(&key.token(&with_kubernetes(bound))).unwrap();
    let pod = proven.pod.unwrap();
    assert_eq!(pod.issuer, "prod");
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()),
        ("team-a", "worker-0", "0b7f-1")
    );
    // Of a token that is bound to no Pod, none is named.
    for unbound in [json!({ "namespace": "team-a" }), json!({}), json!(null)] {
        let proven = site.prove(&key.token(&with_kubernetes(unbound))).unwrap();
        assert_eq!(proven.pod, None);
    }
}

#[test]
fn a_pod_that_cannot_be_of_the_account_is_refused() {
    let (key, site) = site();
    for bound in [
        json!({ "namespace": "team-b", "pod": { "name": "w", "uid": "1" } }),
        json!({ "pod": { "name": "w", "uid": "1" } }),
        json!({ "namespace": "team-a", "pod": { "name": "", "uid": "1" } }),
        json!({ "namespace": "team-a", "pod": { "name": "w", "uid": "" } }),
        json!({ "namespace": "team-a", "pod": { "name": "a/b", "uid": "1" } }),
        json!({ "namespace": "team-a", "pod": { "name": "w", "uid": "*" } }),
        json!({ "namespace": "team-a", "pod": { "name": "w" } }),
        json!({ "namespace": "team-a", "pod": "w" }),
        json!({ "namespace": 1 }),
        json!("team-a"),
        json!(["team-a", ["w", "1"]]),
    ] {
        let refused = site.prove(&key.token(&with_kubernetes(bound.clone())));
        assert!(refused.is_err(), "{bound}");
    }
}

#[test]
fn a_pod_that_is_named_twice_is_refused() {
    let (key, site) = site();
    let claims = claims(WORKER).to_string();
    let twice = r#""kubernetes.io":{"namespace":"team-a"},"kubernetes.io":{"namespace":"team-a"}"#;
    let claims = format!("{{{twice},{}", &claims[1..]);
    assert!(
        site.prove(&key.token_of(&key.header().to_string(), &claims))
            .is_err()
    );
}

#[test]
fn an_issuer_of_another_kind_binds_no_pod() {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    let bound = json!({ "namespace": "team-a", "pod": { "name": "w", "uid": "1" } });
    let proven = site.prove(&key.token(&with_kubernetes(bound))).unwrap();
    assert_eq!(proven.pod, None);
}
