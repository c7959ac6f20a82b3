//! Which algorithm with which key.

use ring::hmac;
use serde_json::json;

use crate::support::{SigningKey, Site, base64url, claims, compact, jwks};

fn three() -> [SigningKey; 3] {
    [
        SigningKey::rsa("rsa"),
        SigningKey::p256("p256"),
        SigningKey::ed25519("ed25519"),
    ]
}

fn site(keys: &[SigningKey]) -> Site {
    Site::of(&keys.iter().collect::<Vec<_>>())
}

fn hmac_sha256(secret: &[u8], signed: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, signed).as_ref().to_vec()
}

#[test]
fn each_of_the_three_algorithms_proves_by_its_key() {
    let keys = three();
    let site = site(&keys);
    for key in &keys {
        let token = key.token(&claims("alice"));
        assert_eq!(site.principal(&token), "jwt:corp:alice", "{}", key.alg());
    }
    assert_eq!(site.prover.figures().proven, 3);
}

#[test]
fn another_key_of_the_same_type_proves_nothing() {
    let site = site(&three());
    for other in [
        SigningKey::rsa("rsa-b"),
        SigningKey::p256("p256"),
        SigningKey::ed25519("ed25519"),
    ] {
        let kid = other.alg().replace("RS256", "rsa");
        let kid = kid.replace("ES256", "p256").replace("EdDSA", "ed25519");
        let header = json!({ "alg": other.alg(), "kid": kid }).to_string();
        let token = other.token_of(&header, &claims("alice").to_string());
        site.assert_refused(&token, "signature is not that of its issuer's key");
    }
}

#[test]
fn attack_10_a_token_without_an_algorithm_is_refused() {
    let keys = three();
    let site = site(&keys);
    let claims = claims("alice").to_string();
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        for kid in [json!(null), json!("rsa"), json!("p256")] {
            let header = json!({ "alg": alg, "kid": kid }).to_string();
            let unsigned = compact(&header, &claims, |_| Vec::new());
            site.assert_refused(&unsigned, "`alg` is not allowed");
            let signed = keys[0].token_of(&header, &claims);
            site.assert_refused(&signed, "`alg` is not allowed");
        }
    }
    for header in [
        "{}",
        r#"{"alg":null}"#,
        r#"{"alg":["RS256"]}"#,
        r#"{"alg":1}"#,
    ] {
        let unsigned = compact(header, &claims, |_| Vec::new());
        site.assert_refused(&unsigned, "no JSON object with `alg`");
        site.assert_refused(&keys[0].token_of(header, &claims), "with `alg`");
    }
    // An honest token whose signature was cut off.
    for key in &keys {
        let token = key.token(&self::claims("alice"));
        let (signed, _) = token.rsplit_once('.').unwrap();
        site.assert_refused(&format!("{signed}."), "signature is not that");
        site.assert_refused(signed, "JWT");
    }
}

#[test]
fn attack_10_hmac_with_a_public_key_as_the_secret_is_refused() {
    let keys = three();
    let site = site(&keys);
    let claims = claims("alice").to_string();
    for key in &keys {
        let jwk = key.jwk();
        let secrets = [
            key.public(),
            base64url(key.public()).into_bytes(),
            jwk.to_string().into_bytes(),
            jwks(&[key]).into_bytes(),
            jwk["n"].as_str().unwrap_or_default().as_bytes().to_vec(),
            jwk["x"].as_str().unwrap_or_default().as_bytes().to_vec(),
            Vec::new(),
        ];
        for secret in secrets {
            for alg in ["HS256", "HS384", "HS512", "hs256"] {
                let header = json!({ "alg": alg, "kid": jwk["kid"] }).to_string();
                let token = compact(header, &claims, |signed| hmac_sha256(&secret, signed));
                site.assert_refused(&token, "`alg` is not allowed");
            }
            // The same tag under the name of the key's own algorithm.
            let header = key.header().to_string();
            let token = compact(header, &claims, |signed| hmac_sha256(&secret, signed));
            site.assert_refused(&token, "signature is not that");
        }
    }
}

#[test]
fn attack_10_a_shared_secret_in_the_key_file_verifies_nothing() {
    let key = SigningKey::p256("p256");
    let secret = b"a secret that stands in a file of public keys";
    let oct = json!({ "kty": "oct", "kid": "oct", "alg": "HS256", "k": base64url(secret) });
    let site = Site::of(&[&key]);
    site.replace_keys(json!({ "keys": [oct, key.jwk()] }).to_string());
    for alg in ["HS256", "ES256", "RS256", "EdDSA"] {
        let header = json!({ "alg": alg, "kid": "oct" }).to_string();
        let token = compact(header, claims("alice").to_string(), |signed| {
            hmac_sha256(secret, signed)
        });
        assert!(site.prove_at(&token, crate::support::NOW + 5).is_err());
    }
}

#[test]
fn attack_10_the_key_decides_the_algorithm_and_not_the_token() {
    let keys = three();
    let site = site(&keys);
    let claims = claims("alice").to_string();
    for key in &keys {
        for named in &keys {
            for alg in ["RS256", "ES256", "EdDSA"] {
                let kid = &named.jwk()["kid"];
                let header = json!({ "alg": alg, "kid": kid }).to_string();
                let proven = site.prove(&key.token_of(&header, &claims)).is_ok();
                let honest = alg == key.alg() && alg == named.alg();
                assert_eq!(proven, honest, "{alg} by {} as {kid}", key.alg());
            }
        }
    }
}

#[test]
fn other_algorithms_of_the_same_keys_are_refused() {
    let keys = three();
    let site = site(&keys);
    for alg in [
        "RS384", "RS512", "PS256", "ES384", "ES512", "ES256K", "Ed25519", "eddsa", "rs256",
        "RS256 ",
    ] {
        for key in &keys {
            let header = json!({ "alg": alg, "kid": key.jwk()["kid"] }).to_string();
            let token = key.token_of(&header, &claims("alice").to_string());
            site.assert_refused(&token, "`alg` is not allowed");
        }
    }
}

#[test]
fn signatures_of_zeros_or_of_another_form_are_refused() {
    let keys = three();
    let site = site(&keys);
    let claims = claims("alice").to_string();
    for key in &keys {
        for bytes in [0, 1, 32, 63, 64, 65, 70, 255, 256, 257, 512] {
            for byte in [0, 1, 0xff] {
                let token = compact(key.header().to_string(), &claims, |_| vec![byte; bytes]);
                site.assert_refused(&token, "signature is not that");
            }
        }
        let long = compact(key.header().to_string(), &claims, |signed| {
            [key.sign(signed), vec![0]].concat()
        });
        site.assert_refused(&long, "signature is not that");
    }
}

#[test]
fn a_change_of_one_bit_anywhere_is_refused() {
    for key in three() {
        let site = Site::of(&[&key]);
        let token = key.token(&claims("alice")).into_bytes();
        for at in 0..token.len() {
            let mut changed = token.clone();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(site.prove(&changed).is_err(), "byte {at} of {}", key.alg());
        }
        assert!(site.prove(&String::from_utf8(token).unwrap()).is_ok());
    }
}

#[test]
fn keys_for_another_purpose_verify_nothing() {
    let key = SigningKey::p256("p256");
    let other = SigningKey::ed25519("other");
    let token = key.token(&claims("alice"));
    for (field, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("key_ops", json!([])),
        ("alg", json!("ES384")),
        ("alg", json!("RS256")),
        ("alg", json!("ECDH-ES")),
        ("crv", json!("P-384")),
    ] {
        let mut jwk = key.jwk();
        jwk[field] = value;
        let text = json!({ "keys": [jwk, other.jwk()] }).to_string();
        let site = Site::of(&[&other]);
        site.replace_keys(text);
        let refused = site.prove_at(&token, crate::support::NOW + 5).unwrap_err();
        assert!(
            refused.why.contains("`kid` is no key"),
            "{field}: {refused}"
        );
    }
}
