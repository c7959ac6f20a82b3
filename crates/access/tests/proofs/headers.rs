//! What a header of a JWT may not do: bring a key, or make the node connect anywhere.

use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::{NOW, SigningKey, Site, base64url, claims, claims_but, compact, jwks};

/// A listener of ours, which must get no connection.
struct Trap {
    listener: TcpListener,
}

impl Trap {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener }
    }

    fn url(&self) -> String {
        format!("http://{}/jwks.json", self.listener.local_addr().unwrap())
    }

    #[track_caller]
    fn assert_untouched(&self) {
        // Connections are accepted in the order in which they came, so ours is the first.
        let ours = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (_, first) = self.listener.accept().unwrap();
        assert_eq!(first, ours.local_addr().unwrap());
    }
}

#[test]
fn attack_10_a_token_that_brings_its_own_key_is_refused_and_nothing_is_fetched() {
    let (honest, ours) = (SigningKey::p256("k"), SigningKey::p256("k"));
    let site = Site::of(&[&honest]);
    let trap = Trap::open();
    let url = trap.url();
    let brought: [(&str, Value); 6] = [
        ("jku", json!(url)),
        ("x5u", json!(url)),
        ("jwk", ours.jwk()),
        ("x5c", json!([base64url(ours.public())])),
        ("x5t", json!(base64url([0; 20]))),
        ("kid", json!(url)),
    ];
    for (field, value) in &brought {
        for kid in [json!("k"), json!("ours"), Value::Null] {
            let mut header = json!({ "alg": "ES256", "kid": kid });
            header[*field] = value.clone();
            let token = ours.token_of(&header.to_string(), &claims("alice").to_string());
            assert!(site.prove(&token).is_err(), "{field}");
        }
    }
    let mut all = json!({ "alg": "ES256", "kid": "k" });
    for (field, value) in &brought[..5] {
        all[*field] = value.clone();
    }
    let token = ours.token_of(&all.to_string(), &claims("alice").to_string());
    site.assert_refused(&token, "signature is not that");
    // An honest issuer's token with such fields is good by the issuer's key alone.
    let token = honest.token_of(&all.to_string(), &claims("alice").to_string());
    assert_eq!(site.principal(&token), "jwt:corp:alice");
    trap.assert_untouched();
}

#[test]
fn attack_10_an_issuer_that_is_a_url_of_ours_is_not_asked() {
    let (honest, ours) = (SigningKey::p256("k"), SigningKey::p256("k"));
    let site = Site::of(&[&honest]);
    let trap = Trap::open();
    let token = ours.token(&claims_but("iss", json!(trap.url())));
    site.assert_refused(&token, "`iss` is no issuer");
    // Nor is a URL in the key file.
    let mut jwk = honest.jwk();
    jwk["x5u"] = json!(trap.url());
    site.replace_keys(json!({ "keys": [jwk], "jwks_uri": trap.url() }).to_string());
    let token = honest.token(&claims("alice"));
    assert!(site.prove_at(&token, NOW + 5).is_ok());
    trap.assert_untouched();
}

#[test]
fn a_key_id_is_no_path_and_no_pattern() {
    let key = SigningKey::p256("k");
    let site = Site::of(&[&key]);
    for kid in [
        "../../../dev/null",
        "/etc/passwd",
        "*",
        "",
        "K",
        "k ",
        " k",
        "k\0",
        "' OR 1=1",
    ] {
        let header = json!({ "alg": "ES256", "kid": kid }).to_string();
        let token = key.token_of(&header, &claims("alice").to_string());
        site.assert_refused(&token, "`kid` is no key");
    }
    for kid in ["1", "[\"k\"]", "{}", "true"] {
        let header = format!(r#"{{"alg":"ES256","kid":{kid}}}"#);
        let token = key.token_of(&header, &claims("alice").to_string());
        site.assert_refused(&token, "malformed JWT");
    }
}

#[test]
fn a_token_without_a_key_id_needs_the_only_key_of_its_algorithm() {
    let (one, two, other) = (
        SigningKey::p256("one"),
        SigningKey::p256("two"),
        SigningKey::ed25519("other"),
    );
    let token = one.token_of(r#"{"alg":"ES256"}"#, &claims("alice").to_string());
    assert!(Site::of(&[&one, &other]).prove(&token).is_ok());
    Site::of(&[&one, &two]).assert_refused(&token, "names no key");
    Site::of(&[&other]).assert_refused(&token, "names no key");
    let unnamed = SigningKey::p256("").unnamed();
    let site = Site::of(&[&unnamed]);
    assert!(site.prove(&unnamed.token(&claims("alice"))).is_ok());
    let header = r#"{"alg":"ES256","kid":""}"#;
    let token = unnamed.token_of(header, &claims("alice").to_string());
    site.assert_refused(&token, "`kid` is no key");
}

#[test]
fn an_extension_that_must_be_understood_is_refused() {
    let key = SigningKey::p256("k");
    let site = Site::of(&[&key]);
    for crit in ["[\"exp\"]", "[\"b64\"]", "[]", "null", "\"exp\"", "{}"] {
        let header = format!(r#"{{"alg":"ES256","kid":"k","crit":{crit},"b64":false}}"#);
        let token = key.token_of(&header, &claims("alice").to_string());
        site.assert_refused(&token, "`crit`");
    }
}

#[test]
fn a_header_with_a_field_twice_is_refused() {
    let key = SigningKey::p256("k");
    let site = Site::of(&[&key]);
    let claims = claims("alice").to_string();
    for header in [
        r#"{"alg":"none","kid":"k","alg":"ES256"}"#,
        r#"{"alg":"ES256","kid":"k","alg":"none"}"#,
        r#"{"alg":"ES256","kid":"other","kid":"k"}"#,
        r#"{"alg":"ES256","kid":"k","\u0061lg":"none"}"#,
    ] {
        site.assert_refused(&key.token_of(header, &claims), "malformed JWT");
        let unsigned = compact(header, &claims, |_| Vec::new());
        site.assert_refused(&unsigned, "malformed JWT");
    }
}

#[test]
fn a_key_file_with_two_keys_of_one_id_is_refused() {
    let (one, two) = (SigningKey::p256("k"), SigningKey::p256("k"));
    let site = Site::of(&[&one]);
    site.replace_keys(jwks(&[&two, &one]));
    // The former keys stay in use.
    let (old, new) = (one.token(&claims("alice")), two.token(&claims("alice")));
    assert!(site.prove_at(&old, NOW + 5).is_ok());
    assert!(site.prove_at(&new, NOW + 5).is_err());
}
