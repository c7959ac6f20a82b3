//! Any bytes as credentials: fuzz targets of `crates/fuzz`, and properties of the tests below. Each
//! panics where a reader breaks a promise. Not part of what is shipped.

use ringfence_core::{ClusterToken, Principal};

use crate::certificate::{CertificateKind, FromCertificate};
use crate::cluster_token::{self, BearerToken, Tokens};
use crate::jwt::decoders;

/// JWTs, as three lines before base64url and as text: what is read has one text, no signature is
/// good, and what the claims name is a principal of their issuer.
pub fn jwt(bytes: &[u8]) {
    decoders::jwt(bytes);
}

/// The key file of an issuer.
pub fn key_file(bytes: &[u8]) {
    decoders::key_file(bytes);
}

/// A client certificate in DER: each kind of name gives a principal of this kind, or nothing.
pub fn certificate(bytes: &[u8]) {
    for kind in [
        CertificateKind::Uri,
        CertificateKind::Dns,
        CertificateKind::Email,
        CertificateKind::CommonName,
    ] {
        match FromCertificate::read(bytes, kind) {
            Ok(read) => {
                for now in [0, 1_800_000_000, u64::MAX - 60] {
                    let Ok(proven) = read.proven(now) else {
                        continue;
                    };
                    let principal = proven.principal.as_str();
                    assert!(principal.starts_with(&format!("cert:{kind}:")));
                    assert!(principal.len() <= 255 && !principal.contains(['\0', '*', ' ']));
                    assert!(
                        proven.expires_unix.is_some(),
                        "a certificate without an end"
                    );
                }
            }
            Err(not) => assert!(not.why.len() < 1_000, "an error as long as its cause"),
        }
    }
}

/// Tokens whose secrets no text has, since no digest is all zeros.
struct Unprovable;

impl Tokens for Unprovable {
    fn token(&self, _: u64) -> Option<ClusterToken> {
        Some(ClusterToken {
            principal: Principal::parse("token:fuzz").expect("a principal"),
            digest: [0; 32],
            expires: None,
        })
    }

    fn has_caught_up(&self) -> bool {
        true
    }
}

/// The text of a cluster token: there is one for each, and none proves without its secret.
pub fn cluster_token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Some(token) = BearerToken::parse(text) {
        assert_eq!(token.to_text(), text, "two texts for one token");
        assert!(token.secret.matches(&token.secret.sha256()));
        assert!(!format!("{token:?}").contains(&text[text.len() - 43..]));
    }
    assert!(cluster_token::prove(text, &Unprovable, 0).is_err());
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn feed(bytes: &[u8]) {
        jwt(bytes);
        key_file(bytes);
        certificate(bytes);
        cluster_token(bytes);
    }

    /// Claims that are nearly good: the right fields with values of every type.
    fn nearly_claims() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            Just("\"a\"".to_owned()),
            Just("\"i\"".to_owned()),
            Just("[\"a\"]".to_owned()),
            Just("null".to_owned()),
            Just(r#"{"namespace":"n","pod":{"name":"p","uid":"u"}}"#.to_owned()),
            any::<u64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| number.to_string()),
            (1_799_999_000_u64..1_800_001_000).prop_map(|time| time.to_string()),
            "[ -~]{0,20}".prop_map(|text| format!("{text:?}")),
            "[a-z]{1,4}:[a-z]{1,4}".prop_map(|text| format!("\"system:serviceaccount:{text}\"")),
        ];
        let name = prop::sample::select(&["iss", "sub", "aud", "exp", "nbf", "kubernetes.io"][..]);
        vec((name, value), 0..7).prop_map(|fields| {
            let fields = fields.into_iter();
            let fields: Vec<_> = fields
                .map(|(name, value)| format!("{name:?}:{value}"))
                .collect();
            format!(
                "{{\"aud\":\"a\",\"exp\":1800000000,\"sub\":\"s\",{}}}",
                fields.join(",")
            )
        })
    }

    /// 1,024 cases of each, unless `PROPTEST_CASES` asks for more or fewer.
    fn config() -> ProptestConfig {
        let standard = ProptestConfig::default();
        let asked = std::env::var_os("PROPTEST_CASES").is_some();
        let cases = if asked { standard.cases } else { 1_024 };
        ProptestConfig {
            cases,
            failure_persistence: None,
            ..standard
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
            feed(&bytes);
        }

        #[test]
        fn what_is_nearly_a_jwt_is_read_or_refused(
            alg in "RS256|ES256|EdDSA|none|HS256",
            kid in "[oe]{0,2}",
            claims in nearly_claims(),
            signature in vec(any::<u8>(), 0..70),
        ) {
            let header = format!(r#"{{"alg":"{alg}","kid":"{kid}"}}"#);
            let lines = [header.as_bytes(), claims.as_bytes(), &signature].join(&b'\n');
            feed(&lines);
        }

        #[test]
        fn what_is_nearly_a_cluster_token_is_read_or_refused(
            text in "rft_[0-9+]{0,21}_[A-Za-z0-9_=-]{42,44}",
        ) {
            feed(text.as_bytes());
        }

        #[test]
        fn a_changed_certificate_is_read_or_refused(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut der = include_bytes!("../../fuzz/seeds/certificate/names.der").to_vec();
            let at = at.index(der.len());
            der[at] = byte;
            certificate(&der);
            certificate(&der[..at]);
        }
    }
}
