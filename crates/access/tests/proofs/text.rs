//! The text of a bearer token and of the header that brings it.

use ringfence_access::{Credential, Peer, TOKEN_BYTES_MAX};
use serde_json::json;

use crate::support::{NOW, SigningKey, Site, claims, claims_but};

fn site() -> (SigningKey, Site) {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    (key, site)
}

#[test]
fn extra_dots_and_parts_are_refused() {
    let (key, site) = site();
    let token = key.token(&claims("alice"));
    let parts: Vec<&str> = token.split('.').collect();
    let (header, body, signature) = (parts[0], parts[1], parts[2]);
    for wrong in [
        format!(".{token}"),
        format!("{token}."),
        format!("{header}..{body}.{signature}"),
        format!("{header}.{body}..{signature}"),
        format!("{header}.{body}.{signature}.{signature}"),
        format!("{header}.{body}.{body}.{signature}"),
        format!("{header}.{body}"),
        format!("{header}.{body}.{signature}.x.y"),
        format!("{body}.{header}.{signature}"),
        header.to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
    ] {
        site.assert_refused(&wrong, "JWT");
    }
}

#[test]
fn whitespace_padding_and_other_alphabets_are_refused() {
    let (key, site) = site();
    // With `-` and `_` in its text, so that the other alphabet differs.
    let token = key.token(&claims_but("x", json!("\u{fb}\u{ff}\u{fe}?>~~~")));
    assert!(site.prove(&token).is_ok());
    let dot = token.find('.').unwrap();
    for between in [" ", "\t", "\n", "\r\n", "\0", "=", "\u{a0}", "%20"] {
        for at in [3, dot, dot + 1, dot + 5, token.len() - 2] {
            let mut wrong = token.clone();
            wrong.insert_str(at, between);
            site.assert_refused(&wrong, "malformed JWT");
        }
    }
    for behind in ["=", "==", "\n", "\t", "A"] {
        assert!(site.prove(&format!("{token}{behind}")).is_err());
    }
    let standard = token.replace('-', "+").replace('_', "/");
    assert_ne!(standard, token);
    site.assert_refused(&standard, "malformed JWT");
}

#[test]
fn a_token_has_one_text() {
    let (key, site) = site();
    let token = key.token(&claims("alice"));
    // 64 bytes leave four bits of the last character unused; they must be zero.
    let last = token.chars().next_back().unwrap();
    let accepted = ('!'..='~').filter(|char| {
        let text = format!("{}{char}", &token[..token.len() - 1]);
        site.prove(&text).is_ok()
    });
    assert_eq!(accepted.collect::<Vec<_>>(), [last]);
}

#[test]
fn a_token_that_is_too_long_is_refused_before_it_is_read() {
    let (key, site) = site();
    let of_length = |bytes: usize| {
        let mut token = key.token(&claims("alice"));
        let mut filler = bytes / 2;
        while token.len() < bytes {
            filler += 1;
            token = key.token(&claims_but("x", json!("x".repeat(filler))));
        }
        token
    };
    let long = of_length(TOKEN_BYTES_MAX - 4);
    assert!(long.len() <= TOKEN_BYTES_MAX, "{}", long.len());
    assert!(site.prove(&long).is_ok());
    let longer = of_length(TOKEN_BYTES_MAX + 1);
    let refused = site.prove(&longer).unwrap_err();
    assert_eq!(refused.credential, Credential::Header);
    let got = format!("has {} bytes; at most 8192", longer.len());
    assert!(refused.why.contains(&got), "{refused}");
    for huge in ["x".repeat(10 << 20), ".".repeat(10 << 20)] {
        site.assert_refused(&huge, "at most 8192");
    }
}

#[test]
fn a_header_is_bearer_and_one_token() {
    let (key, site) = site();
    let token = key.token(&claims("alice"));
    let prove = |header: &[u8]| site.prover.prove(&Peer::bare(), Some(header), NOW);
    for good in [
        format!("Bearer {token}"),
        format!("bearer {token}"),
        format!("BEARER {token}"),
        format!("Bearer   {token} "),
    ] {
        assert!(prove(good.as_bytes()).is_ok(), "{good}");
    }
    for wrong in [
        String::new(),
        token.clone(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer    ".to_owned(),
        format!("Bearer\t{token}"),
        format!(" Bearer {token}"),
        format!("Basic {token}"),
        format!("Bearer{token}"),
        format!("Bearer, Bearer {token}"),
    ] {
        let refused = prove(wrong.as_bytes()).unwrap_err();
        assert!(refused.why.contains("is not `Bearer TOKEN`"), "{refused}");
    }
    assert!(prove(&[b"Bearer ", token.as_bytes(), b"\xff"].concat()).is_err());
    assert!(prove(format!("Bearer {token},{token}").as_bytes()).is_err());
    assert!(prove(format!("Bearer {token} {token}").as_bytes()).is_err());
}

#[test]
fn a_bad_token_is_refused_and_nothing_else_is_tried() {
    let (_, site) = site();
    for peer in [Peer::bare(), Peer::admin_socket()] {
        for header in [&b"Bearer x.y.z"[..], b"Basic YTpi", b"Bearer rft_1_x", b""] {
            assert!(site.prover.prove(&peer, Some(header), NOW).is_err());
        }
        assert!(site.prover.prove(&peer, None, NOW).is_ok());
    }
}

#[test]
fn no_refusal_repeats_a_part_of_the_credential() {
    let (key, site) = site();
    let secret = "hunter2hunter2";
    for claims in [
        claims(&format!("{secret} ")),
        claims_but("iss", json!(secret)),
        claims_but("aud", json!(secret)),
        claims_but("exp", json!(secret)),
    ] {
        let refused = site.refusal(&key.token(&claims));
        assert!(!refused.contains(secret), "{refused}");
    }
    for header in [
        json!({ "alg": secret }),
        json!({ "alg": "EdDSA", "kid": secret }),
        json!({ "alg": "EdDSA", "crit": [secret] }),
    ] {
        let refused = site.refusal(&key.token_of(&header.to_string(), "{}"));
        assert!(!refused.contains(secret), "{refused}");
    }
    for token in [
        secret.to_owned(),
        format!("rft_1_{secret}"),
        format!("{secret}.{secret}."),
    ] {
        let refused = site.refusal(&token);
        assert!(!refused.contains(secret), "{refused}");
    }
}
