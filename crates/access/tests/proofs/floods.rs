//! Many bad tokens: what they cost, and that they lock no honest caller out.

use ring::rand::{SecureRandom, SystemRandom};
use ringfence_access::{
    CACHED_PROOFS_MAX, Credential, FAILED_PROOFS_PER_CONNECTION, FAILED_PROOFS_PER_NODE, Peer,
};
use serde_json::json;

use crate::support::{NOW, SigningKey, Site, base64url, claims, compact, jwks};

fn site() -> (SigningKey, Site) {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    (key, site)
}

/// A token of the issuer with a random key id.
fn of_random_key() -> String {
    let mut id = [0; 16];
    SystemRandom::new().fill(&mut id).unwrap();
    let header = json!({ "alg": "EdDSA", "kid": base64url(id) }).to_string();
    compact(header, claims("mallory").to_string(), |_| vec![7; 64])
}

#[test]
fn attack_10_ten_thousand_random_key_ids_read_the_key_file_once() {
    let (key, site) = site();
    for n in 0..10_000 {
        let refused = site.prove_at(&of_random_key(), NOW + n / 500).unwrap_err();
        assert!(refused.why.contains("`kid` is no key"), "{refused}");
    }
    let figures = site.prover.figures();
    assert_eq!(figures.key_file_reads, 1, "it did not change");
    assert_eq!(figures.failed[2], (Credential::Jwt, 10_000));
    assert_eq!((figures.limited, figures.cached_proofs), (0, 0));
    assert!(
        site.prove_at(&key.token(&claims("alice")), NOW + 20)
            .is_ok()
    );
}

#[test]
fn attack_10_random_key_ids_read_a_file_that_changes_at_the_allowed_rate() {
    let (key, site) = site();
    for n in 0..10_000 {
        // Twenty seconds, and a new file at each fiftieth token.
        if n % 50 == 0 {
            site.replace_keys(jwks(&[&key]));
        }
        assert!(site.prove_at(&of_random_key(), NOW + n / 500).is_err());
    }
    // At the start, and 5, 10 and 15 seconds later.
    assert_eq!(site.prover.figures().key_file_reads, 4);
}

#[test]
fn bad_tokens_beyond_the_limit_of_a_connection_are_not_looked_at() {
    let (key, site) = site();
    let peer = Peer::bare();
    for _ in 0..FAILED_PROOFS_PER_CONNECTION {
        let refused = site.prove_on(&peer, &of_random_key(), NOW).unwrap_err();
        assert!(!refused.limited);
    }
    let honest = key.token(&claims("alice"));
    for token in [&of_random_key(), &honest] {
        let refused = site.prove_on(&peer, token, NOW).unwrap_err();
        assert!(refused.limited && refused.why.contains("this connection"));
    }
    let figures = site.prover.figures();
    let failed: u64 = figures.failed.iter().map(|(_, count)| count).sum();
    assert_eq!((failed, figures.limited, figures.proven), (10, 2, 0));
    // Others, and this one in the next second, are looked at.
    assert!(site.prove(&honest).is_ok());
    assert!(site.prove_on(&peer, &honest, NOW + 1).is_ok());
}

#[test]
fn a_flood_on_one_connection_does_not_lock_out_proven_callers_on_it() {
    let (key, site) = site();
    let gateway = Peer::bare();
    let (known, unknown) = (key.token(&claims("alice")), key.token(&claims("bob")));
    assert!(site.prove_on(&gateway, &known, NOW).is_ok());
    for _ in 0..1_000 {
        assert!(site.prove_on(&gateway, &of_random_key(), NOW).is_err());
    }
    assert!(site.prove_on(&gateway, &known, NOW).is_ok());
    assert!(site.prove_on(&gateway, &unknown, NOW).is_err());
    assert!(site.prove_on(&gateway, &unknown, NOW + 1).is_ok());
    // What the connection itself shows is no offered token.
    assert!(site.prover.prove(&gateway, None, NOW).is_ok());
}

#[test]
fn a_flood_on_all_connections_does_not_lock_out_an_honest_one() {
    let (key, site) = site();
    let flood: Vec<Peer> = (0..500).map(|_| Peer::bare()).collect();
    let honest: Vec<Peer> = (0..50).map(|_| Peer::bare()).collect();
    for (n, peer) in flood.iter().chain(&flood).chain(&flood).enumerate() {
        let refused = site.prove_on(peer, &of_random_key(), NOW).unwrap_err();
        // The first thousand were looked at.
        let late = n >= FAILED_PROOFS_PER_NODE as usize;
        assert_eq!(refused.limited, late, "{n}: {refused}");
        assert_eq!(refused.why.contains("on this node"), late, "{n}");
    }
    for (n, peer) in honest.iter().enumerate() {
        let token = key.token(&claims(&format!("user-{n}")));
        assert!(site.prove_on(peer, &token, NOW).is_ok(), "{n}");
    }
    let figures = site.prover.figures();
    assert_eq!(figures.failed[2], (Credential::Jwt, 1_000));
    assert_eq!((figures.limited, figures.proven), (500, 50));
    // Nor the flooding connections for longer than the second.
    assert!(
        site.prove_on(&flood[0], &key.token(&claims("late")), NOW + 1)
            .is_ok()
    );
}

#[test]
fn refusals_are_counted_by_what_was_offered() {
    let (key, site) = site();
    let peer = || Peer::bare();
    assert!(site.prover.prove(&peer(), Some(b"Basic x"), NOW).is_err());
    for token in ["rft_1_x", "rft_", "rft_2_y"] {
        assert!(site.prove(token).is_err());
    }
    for _ in 0..2 {
        assert!(site.prove("a.b.c").is_err());
    }
    assert!(site.prove(&key.token(&claims("alice"))).is_ok());
    assert!(site.prover.prove(&peer(), None, NOW).is_ok());
    let figures = site.prover.figures();
    let failed = [
        (Credential::Header, 1),
        (Credential::ClusterToken, 3),
        (Credential::Jwt, 2),
        (Credential::Certificate, 0),
    ];
    assert_eq!(figures.failed, failed);
    assert_eq!((figures.proven, figures.limited), (2, 0));
}

#[test]
fn remembered_proofs_have_a_limit() {
    let (key, site) = site();
    for n in 0..CACHED_PROOFS_MAX + 100 {
        let token = key.token(&claims(&format!("user-{n}")));
        assert!(site.prove(&token).is_ok());
        assert!(site.prover.figures().cached_proofs <= CACHED_PROOFS_MAX);
    }
    assert!(site.prover.figures().cached_proofs >= CACHED_PROOFS_MAX / 2);
}
