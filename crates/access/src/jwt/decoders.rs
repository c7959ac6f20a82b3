//! Any bytes as JWTs and as key files.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::claims::Claims;
use super::compact::Compact;
use super::key::Keys;
use super::{caller, check_signature};
use crate::credentials::{Issuer, IssuerKind};

/// The wall clock: a time that ten digits can be before and behind.
const NOW: u64 = 1_800_000_000;

/// One key of each type. The private halves are not known here, so nothing is well signed.
const JWKS: &str = r#"{"keys":[
    {"kty":"OKP","crv":"Ed25519","kid":"o","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"EC","crv":"P-256","kid":"e","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
     "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

fn issuer(kind: IssuerKind) -> Issuer {
    Issuer {
        alias: "corp".to_owned(),
        issuer: "i".to_owned(),
        audience: "a".to_owned(),
        keys: "unused".into(),
        kind,
    }
}

/// Header, claims and signature before base64url, a line each; and the bytes as the text of a JWT.
pub(crate) fn jwt(bytes: &[u8]) {
    let parts: Vec<&[u8]> = bytes.splitn(3, |byte| *byte == b'\n').collect();
    let encoded: Vec<String> = parts
        .iter()
        .map(|part| URL_SAFE_NO_PAD.encode(part))
        .collect();
    text(&encoded.join("."));
    if let Ok(raw) = std::str::from_utf8(bytes) {
        text(raw);
    }
    if let Some(json) = parts.get(1) {
        claims(json);
    }
}

fn text(text: &str) {
    let Ok(token) = Compact::parse(text) else {
        return;
    };
    assert_eq!(text.matches('.').count(), 2, "parts beside the three");
    let signature = URL_SAFE_NO_PAD.encode(&token.signature);
    assert_eq!(
        format!("{}.{signature}", token.signed),
        text,
        "a token with two texts"
    );
    let keys = Keys::parse(JWKS.as_bytes()).expect("a JWKS");
    assert!(
        check_signature(&token, &keys).is_err(),
        "a signature out of nothing"
    );
    claims(&token.claims);
}

/// What verified claims would prove.
fn claims(json: &[u8]) {
    let Ok(claims) = Claims::parse(json) else {
        return;
    };
    for (kind, grace) in [
        (IssuerKind::Jwt, 0),
        (IssuerKind::Kubernetes, 0),
        (IssuerKind::Kubernetes, 86_400),
    ] {
        let Ok(proven) = caller(&issuer(kind), &claims, json, NOW, grace) else {
            continue;
        };
        let principal = proven.principal.as_str();
        let begin = match kind {
            IssuerKind::Jwt => "jwt:corp:",
            IssuerKind::Kubernetes => "sa:corp:",
        };
        assert!(principal.starts_with(begin) && principal.len() <= 255);
        assert!(
            principal
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'*')
        );
        assert!(proven.holds_at(NOW - grace) && proven.expires_unix.is_some());
        if let Some(pod) = proven.pod {
            assert!(principal.starts_with(&format!("sa:corp:{}/", pod.namespace)));
        }
    }
}

/// A key file.
pub(crate) fn key_file(bytes: &[u8]) {
    match Keys::parse(bytes) {
        Ok(keys) => {
            // The header names no key, so one is taken if it is the only one.
            let token = Compact::parse("eyJhbGciOiJFZERTQSJ9.e30.AA").expect("a JWT");
            assert!(check_signature(&token, &keys).is_err());
        }
        Err(why) => assert!(why.len() < 1_000, "an error as long as its cause"),
    }
}
