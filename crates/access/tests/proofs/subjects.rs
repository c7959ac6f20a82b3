//! Subjects of JWTs: taken whole or refused, never cut and never changed.

use ringfence_core::{PRINCIPAL_BYTES_MAX, PrincipalPattern};
use serde_json::{Value, json};

use crate::support::{SigningKey, Site, claims, claims_but};

fn site() -> (SigningKey, Site) {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    (key, site)
}

#[test]
fn attack_9_a_subject_with_separators_stays_as_it_is() {
    let (key, site) = site();
    for sub in [
        "a/b",
        "a/../b",
        "..",
        "../admin",
        "/",
        "//",
        "./.",
        "a|b",
        "|",
        "auth0|5f7c8ec7c33c6c004bbafe82",
        "a:b",
        "two:alice",
        "local",
        "anonymous",
        "token:backup",
        "%2e%2e%2f",
        "{namespace}",
        "\"quoted\"\\",
        "~!@#$^&()_+-=[];',<>?`",
    ] {
        let principal = site.principal(&key.token(&claims(sub)));
        assert_eq!(principal, format!("jwt:corp:{sub}"));
    }
}

#[test]
fn attack_9_a_subject_with_a_star_a_space_or_other_bytes_is_refused() {
    let (key, site) = site();
    for sub in [
        "*",
        "a*",
        "*a",
        "team/*",
        " ",
        "a b",
        " alice",
        "alice ",
        "\t",
        "alice\n",
        "alice\r\nx: y",
        "alice\0",
        "\0",
        "\u{7f}",
        "\u{1b}[2K",
        "älice",
        "аlice",
        "\u{202e}ecila",
        "alice\u{200b}",
        "\u{feff}alice",
        "\u{ff0a}",
    ] {
        let refused = site.refusal(&key.token(&claims(sub)));
        assert!(refused.contains("not printable ASCII"), "{refused}");
        assert!(
            !refused.contains("alice"),
            "it repeats the subject: {refused}"
        );
    }
}

#[test]
fn attack_9_a_subject_of_256_bytes_is_refused_and_never_cut() {
    let (key, site) = site();
    let room = PRINCIPAL_BYTES_MAX - "jwt:corp:".len();
    let longest = "s".repeat(room);
    let principal = site.principal(&key.token(&claims(&longest)));
    assert_eq!(principal, format!("jwt:corp:{longest}"));
    assert_eq!(principal.len(), 255);
    for bytes in [room + 1, 255, 256, 257, 5_000] {
        let refused = site.refusal(&key.token(&claims(&"s".repeat(bytes))));
        let found = format!("makes a principal of {} bytes", bytes + 9);
        assert!(refused.contains(&found), "{refused}");
    }
}

#[test]
fn a_token_without_a_subject_is_refused() {
    let (key, site) = site();
    site.assert_refused(&key.token(&claims("")), "has no `sub`");
    site.assert_refused(&key.token(&claims_but("sub", Value::Null)), "has no `sub`");
    for no_text in [json!(7), json!(["alice"]), json!({}), json!(false)] {
        site.assert_refused(&key.token(&claims_but("sub", no_text)), "malformed JWT");
    }
}

#[test]
fn attack_9_what_a_subject_makes_is_never_a_pattern() {
    let (key, site) = site();
    for sub in ["a/../b", "/", "a:", "team/"] {
        let principal = site.principal(&key.token(&claims(sub)));
        let pattern = PrincipalPattern::parse(&principal).unwrap();
        assert!(matches!(pattern, PrincipalPattern::Exact(_)), "{sub}");
    }
}
