//! Which issuer a token is from.

use ringfence_access::{Credentials, IssuerKind, Prover};
use serde_json::{Value, json};

use crate::support::{ISSUER, NOW, SigningKey, Site, Stored, claims, claims_but, jwks};

#[test]
fn an_issuer_is_compared_byte_by_byte() {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    for other in [
        "https://idp.example/",
        "https://idp.example//",
        "HTTPS://idp.example",
        "https://IDP.example",
        "http://idp.example",
        "https://idp.example:443",
        " https://idp.example",
        "https://idp.example ",
        "https://idp.example\0",
        "https://idp.example.attacker.example",
        "https://idp.exampl",
        "idp.example",
        "corp",
        "*",
        "",
    ] {
        let token = key.token(&claims_but("iss", json!(other)));
        site.assert_refused(&token, "`iss` is no issuer");
    }
    site.assert_refused(&key.token(&claims_but("iss", Value::Null)), "`iss` is no");
    for no_text in [json!(1), json!([ISSUER]), json!({ "iss": ISSUER })] {
        site.assert_refused(&key.token(&claims_but("iss", no_text)), "malformed JWT");
    }
}

#[test]
fn attack_9_two_issuers_with_one_subject_make_two_principals() {
    let (one, two) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::with(
        &[
            ("one", "https://one", IssuerKind::Jwt, jwks(&[&one])),
            ("two", "https://two", IssuerKind::Jwt, jwks(&[&two])),
        ],
        None,
    );
    let of = |issuer: &str| claims_but("iss", json!(issuer));
    let first = site.principal(&one.token(&of("https://one")));
    let second = site.principal(&two.token(&of("https://two")));
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("jwt:one:alice", "jwt:two:alice")
    );
    // The keys of one say nothing for the other, whatever the ids of the keys.
    for token in [one.token(&of("https://two")), two.token(&of("https://one"))] {
        site.assert_refused(&token, "signature is not that of its issuer's key");
    }
}

#[test]
fn attack_9_two_kubernetes_with_one_account_make_two_principals() {
    let (one, two) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::with(
        &[
            ("one", "https://one", IssuerKind::Kubernetes, jwks(&[&one])),
            ("two", "https://two", IssuerKind::Kubernetes, jwks(&[&two])),
            ("corp", "https://corp", IssuerKind::Jwt, jwks(&[&two])),
        ],
        None,
    );
    let of = |issuer: &str| {
        let mut claims = claims("system:serviceaccount:team-a:worker");
        claims["iss"] = json!(issuer);
        claims
    };
    assert_eq!(
        site.principal(&one.token(&of("https://one"))),
        "sa:one:team-a/worker"
    );
    assert_eq!(
        site.principal(&two.token(&of("https://two"))),
        "sa:two:team-a/worker"
    );
    // An issuer that is no Kubernetes makes no service account, whatever it signs.
    assert_eq!(
        site.principal(&two.token(&of("https://corp"))),
        "jwt:corp:system:serviceaccount:team-a:worker"
    );
}

#[test]
fn a_key_file_that_is_not_there_stops_the_start_and_is_named() {
    let issuer = "corp=https://idp.example,audience=a,jwks=/absent/keys.json";
    let credentials = Credentials {
        certificate: None,
        issuers: vec![ringfence_access::Issuer::parse(issuer).unwrap()],
    };
    let refused = Prover::new(credentials, std::sync::Arc::new(Stored::default()), NOW);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("issuer corp in /absent/keys.json"),
        "{refused}"
    );
}

#[test]
fn a_node_without_issuers_refuses_every_jwt() {
    let key = SigningKey::ed25519("k");
    let site = Site::with(&[], None);
    site.assert_refused(&key.token(&claims("alice")), "takes no JWTs");
}
