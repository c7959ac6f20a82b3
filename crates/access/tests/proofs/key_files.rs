//! Key files that change, break, or are gone.

use std::fs;
use std::process::Command;

use ringfence_access::{KEY_FILE_BYTES_MAX, KEYS_PER_FILE_MAX, RSA_BITS};
use serde_json::json;

use crate::support::{NOW, SigningKey, Site, base64url, claims, jwks};

/// Seconds between two looks at a file.
const PAUSE: u64 = 5;

#[test]
fn attack_10_a_key_file_that_is_gone_leaves_the_cached_keys_in_use() {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    let (one, two) = (key.token(&claims("one")), key.token(&claims("two")));
    assert!(site.prove(&one).is_ok());
    fs::remove_file(site.key_file()).unwrap();
    for later in [0, PAUSE, 2 * PAUSE, 500] {
        assert!(site.prove_at(&one, NOW + later).is_ok(), "remembered");
        assert!(site.prove_at(&two, NOW + later).is_ok(), "verified");
    }
    assert_eq!(site.prover.figures().key_file_reads, 1);
    // It comes back with other keys.
    let new = SigningKey::ed25519("k");
    site.replace_keys(jwks(&[&new]));
    let later = NOW + 500 + PAUSE;
    assert!(site.prove_at(&one, later).is_err());
    assert!(site.prove_at(&new.token(&claims("two")), later).is_ok());
}

#[test]
fn attack_10_a_broken_key_file_leaves_the_cached_keys_in_use() {
    let key = SigningKey::ed25519("k");
    let point = json!({ "kty": "EC", "crv": "P-256", "kid": "p", "x": "AAAA", "y": "AAAA" });
    let short_rsa = json!({ "kty": "RSA", "kid": "r", "n": base64url([0xff; 128]), "e": "AQAB" });
    let long_rsa = json!({ "kty": "RSA", "kid": "r", "n": base64url([0xff; 513]), "e": "AQAB" });
    let with = |other| json!({ "keys": [key.jwk(), other] }).to_string();
    let many: Vec<_> = (0..=KEYS_PER_FILE_MAX)
        .map(|n| json!({ "kty": "oct", "kid": n.to_string() }))
        .collect();
    let bytes = usize::try_from(KEY_FILE_BYTES_MAX).unwrap();
    let site = Site::of(&[&key]);
    let valid = jwks(&[&key]);
    let broken = [
        String::new(),
        "{".to_owned(),
        valid[..valid.len() - 1].to_owned(),
        "{}".to_owned(),
        r#"{"keys":[]}"#.to_owned(),
        r#"{"keys":{}}"#.to_owned(),
        r#"{"keys":[],"keys":[]}"#.to_owned(),
        "not JSON".to_owned(),
        json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] }).to_string(),
        with(point),
        with(short_rsa),
        with(long_rsa),
        with(json!({ "kty": "OKP", "crv": "Ed25519", "x": "====" })),
        with(json!({ "kty": "OKP", "crv": "Ed25519" })),
        with(json!({ "kid": "no type" })),
        json!({ "keys": many }).to_string(),
        format!("{valid}{}", " ".repeat(bytes)),
    ];
    let mut now = NOW;
    for (at, text) in broken.into_iter().enumerate() {
        site.replace_keys(text);
        now += PAUSE;
        let token = key.token(&claims(&format!("user-{at}")));
        assert!(site.prove_at(&token, now).is_ok(), "broken file {at}");
        assert_eq!(site.prover.figures().key_files_unusable, 1, "file {at}");
    }
    let other = SigningKey::ed25519("other");
    site.replace_keys(jwks(&[&key, &other]));
    now += PAUSE;
    assert!(site.prove_at(&other.token(&claims("x")), now).is_ok());
    assert_eq!(site.prover.figures().key_files_unusable, 0);
    assert_eq!(*RSA_BITS.start(), 2_048);
    // Bytes that are no text, a directory, a pipe without a writer, an endless device.
    site.replace_keys(b"{\"keys\":[{\"kty\":\"\xff\"}]}");
    assert!(site.prove_at(&key.token(&claims("a")), now + PAUSE).is_ok());
    let file = site.key_file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(
        site.prove_at(&key.token(&claims("b")), now + 2 * PAUSE)
            .is_ok()
    );
    fs::remove_dir(&file).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    assert!(
        site.prove_at(&key.token(&claims("c")), now + 3 * PAUSE)
            .is_ok()
    );
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    assert!(
        site.prove_at(&key.token(&claims("d")), now + 4 * PAUSE)
            .is_ok()
    );
}

#[test]
fn a_file_that_could_not_be_used_is_read_again_although_it_did_not_change() {
    // A read may fail for want of file descriptors or memory, which shows in no time of the file.
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    site.replace_keys("{");
    let token = key.token(&claims("alice"));
    for look in 1..=4 {
        for _ in 0..3 {
            assert!(site.prove_at(&token, NOW + look * PAUSE).is_ok());
        }
        assert_eq!(site.prover.figures().key_file_reads, 1 + look);
    }
}

#[test]
fn attack_10_rotated_keys_are_taken_and_the_removed_key_is_refused() {
    let (old, new) = (SigningKey::rsa("rsa-a"), SigningKey::rsa("rsa-b"));
    let site = Site::of(&[&old]);
    let (of_old, of_new) = (old.token(&claims("alice")), new.token(&claims("alice")));
    assert!(site.prove(&of_old).is_ok());
    site.assert_refused(&of_new, "update the JWKS file");

    site.replace_keys(jwks(&[&old, &new]));
    assert!(site.prove_at(&of_new, NOW + PAUSE).is_ok());
    assert!(site.prove_at(&of_old, NOW + PAUSE).is_ok());

    site.replace_keys(jwks(&[&new]));
    let refused = site.prove_at(&of_old, NOW + 2 * PAUSE).unwrap_err();
    assert!(refused.why.contains("`kid` is no key"), "{refused}");
    assert!(site.prove_at(&of_new, NOW + 2 * PAUSE).is_ok());
    assert_eq!(site.prover.figures().key_file_reads, 3);
}

#[test]
fn attack_10_a_remembered_proof_of_a_removed_key_is_forgotten() {
    let (old, new) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::of(&[&old]);
    let token = old.token(&claims("alice"));
    for _ in 0..3 {
        assert!(site.prove(&token).is_ok());
    }
    assert_eq!(site.prover.figures().cached, 2);
    site.replace_keys(jwks(&[&new]));
    for later in [PAUSE, PAUSE, PAUSE + 1, 100] {
        assert!(site.prove_at(&token, NOW + later).is_err());
    }
    let figures = site.prover.figures();
    assert_eq!((figures.cached, figures.cached_proofs), (2, 0));
}

#[test]
fn a_file_that_is_written_in_place_is_taken_too() {
    let (old, new) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::of(&[&old]);
    // Of the same length, so only its times differ.
    let modified = || fs::metadata(site.key_file()).unwrap().modified().unwrap();
    let first = modified();
    while modified() == first {
        fs::write(site.key_file(), jwks(&[&new])).unwrap();
    }
    assert!(site.prove_at(&new.token(&claims("a")), NOW + PAUSE).is_ok());
    assert!(
        site.prove_at(&old.token(&claims("a")), NOW + PAUSE)
            .is_err()
    );
}

#[test]
fn a_clock_that_is_set_back_delays_no_rotation() {
    let (old, new) = (SigningKey::ed25519("k"), SigningKey::ed25519("k"));
    let site = Site::of(&[&old]);
    site.replace_keys(jwks(&[&new]));
    assert!(site.prove_at(&new.token(&claims("a")), NOW - 3_600).is_ok());
}

#[test]
fn keys_of_unknown_types_are_skipped() {
    let key = SigningKey::p256("k");
    let site = Site::of(&[&SigningKey::p256("k")]);
    let keys = json!({ "keys": [
        { "kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA" },
        { "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" },
        { "kty": "OKP", "crv": "X25519", "x": "AA" },
        { "kty": "RSA", "use": "enc", "n": "AA", "e": "AQAB" },
        key.jwk(),
    ], "expires": 7 });
    site.replace_keys(keys.to_string());
    assert!(site.prove_at(&key.token(&claims("a")), NOW + PAUSE).is_ok());
}
