//! Cluster tokens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringfence_access::{BearerToken, Credentials, Peer, Proven, Prover, TokenSecret, Tokens};
use ringfence_core::{ClusterToken, Principal};

use crate::support::{NOW, Site, Stored};

/// A token that the cluster knows.
fn made(site: &Site, id: u64, expires: Option<u64>) -> BearerToken {
    let token = BearerToken {
        id,
        secret: TokenSecret::generate(),
    };
    let stored = ClusterToken {
        principal: Principal::parse("token:ci").unwrap(),
        digest: token.secret.sha256(),
        expires,
    };
    site.tokens.0.lock().unwrap().insert(id, stored);
    token
}

fn site() -> Site {
    Site::with(&[], None)
}

#[test]
fn a_token_proves_its_principal_and_its_id() {
    let site = site();
    let token = made(&site, 17, None).to_text();
    let expected = Proven {
        principal: Principal::parse("token:ci").unwrap(),
        token: Some(17),
        expires_unix: None,
        pod: None,
    };
    assert_eq!(site.prove(&token), Ok(expected));
    assert!(site.prove_at(&token, u64::MAX).is_ok(), "it has no end");
}

#[test]
fn a_node_that_may_not_know_a_token_yet_says_so_and_counts_no_failure() {
    let site = site();
    let known = made(&site, 1, None);
    let made_since = BearerToken {
        id: 9,
        secret: TokenSecret::generate(),
    };
    let wrong = BearerToken {
        id: 1,
        secret: TokenSecret::generate(),
    };
    let peer = Peer::bare();
    let behind = |behind| site.tokens.1.store(behind, Ordering::Relaxed);
    behind(true);
    assert!(site.prove(&known.to_text()).is_ok(), "it knows this one");
    for _ in 0..1_000 {
        for token in [&made_since, &wrong] {
            let not = site.prove_on(&peer, &token.to_text(), NOW).unwrap_err();
            assert!(not.behind && !not.limited, "{not:?}");
            assert!(not.to_string().contains("not caught up"), "{not}");
        }
    }
    let malformed = site.prove("rft_1_x").unwrap_err();
    assert!(!malformed.behind, "whatever the state");

    behind(false);
    let limited = |_| {
        site.prove_on(&peer, &made_since.to_text(), NOW)
            .unwrap_err()
    };
    let refused: Vec<_> = (0..20).map(limited).collect();
    assert!(refused.iter().all(|not| !not.behind));
    assert!(!refused[0].limited, "none of those before counted");
    assert!(refused[19].limited, "each of these does");
}

/// The tokens of a node that catches up between two looks at it.
struct CatchingUp(Stored);

impl Tokens for CatchingUp {
    fn token(&self, id: u64) -> Option<ClusterToken> {
        let behind = self.0.1.load(Ordering::Relaxed);
        self.0.token(id).filter(|_| !behind)
    }

    fn has_caught_up(&self) -> bool {
        self.0.1.store(false, Ordering::Relaxed);
        true
    }
}

#[test]
fn a_token_that_comes_while_it_is_looked_for_is_good() {
    let site = site();
    let token = made(&site, 17, None);
    let stored = std::mem::take(&mut *site.tokens.0.lock().unwrap());
    let stored = Stored(stored.into(), true.into());
    let credentials = Credentials::default();
    let prover = Prover::new(credentials, Arc::new(CatchingUp(stored)), NOW).unwrap();
    let header = format!("Bearer {}", token.to_text());
    let proven = prover.prove(&Peer::bare(), Some(header.as_bytes()), NOW);
    assert_eq!(proven.unwrap().token, Some(17));
}

#[test]
fn a_wrong_secret_and_an_unknown_id_are_refused_alike() {
    let site = site();
    let (one, two) = (made(&site, 1, None), made(&site, 2, None));
    let other = |id, secret: &TokenSecret| {
        let secret = secret.clone();
        site.refusal(&BearerToken { id, secret }.to_text())
    };
    let refusals = [
        other(1, &two.secret),
        other(2, &one.secret),
        other(1, &TokenSecret::generate()),
        other(3, &one.secret),
        other(0, &one.secret),
        other(u64::MAX, &one.secret),
    ];
    for refused in refusals {
        assert!(
            refused.contains("no cluster token of this cluster"),
            "{refused}"
        );
    }
    // One bit of the secret.
    let text = one.to_text();
    for at in text.len() - 43..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        assert!(site.prove(&String::from_utf8(changed).unwrap()).is_err());
    }
    assert!(site.prove(&text).is_ok());
}

#[test]
fn the_digest_that_the_cluster_keeps_is_no_secret() {
    use base64::Engine;
    let site = site();
    let token = made(&site, 1, None);
    let digest = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.secret.sha256());
    site.assert_refused(&format!("rft_1_{digest}"), "no cluster token of this");
}

#[test]
fn an_expired_token_is_refused_from_a_minute_after_its_end() {
    let site = site();
    let token = made(&site, 1, Some(NOW)).to_text();
    for now in [0, NOW, NOW + 59] {
        assert_eq!(
            site.prove_at(&token, now).unwrap().expires_unix,
            Some(NOW + 60)
        );
    }
    for now in [NOW + 60, NOW + 61, u64::MAX] {
        let refused = site.prove_at(&token, now).unwrap_err();
        assert!(refused.why.contains("has expired"), "{refused}");
    }
    let endless = made(&site, 2, Some(u64::MAX)).to_text();
    assert!(site.prove(&endless).is_ok());
}

#[test]
fn a_removed_token_is_refused_at_once_and_its_id_serves_no_other() {
    let site = site();
    let token = made(&site, 1, None).to_text();
    for _ in 0..5 {
        assert!(site.prove(&token).is_ok());
    }
    site.tokens.0.lock().unwrap().remove(&1);
    site.assert_refused(&token, "it may be revoked");
    // No proof by a cluster token is remembered.
    assert_eq!(site.prover.figures().cached_proofs, 0);
    let second = made(&site, 1, None).to_text();
    assert!(site.prove(&token).is_err());
    assert!(site.prove(&second).is_ok());
}

#[test]
fn other_texts_are_no_tokens() {
    let site = site();
    let text = made(&site, 17, None).to_text();
    let secret = text.strip_prefix("rft_17_").unwrap();
    for wrong in [
        format!("rft_17_{secret}.x.y"),
        format!("rft_17_{secret}\n"),
        format!("rft_17_ {secret}"),
        format!("rft_0x11_{secret}"),
        format!("rft_-17_{secret}"),
        format!("rft_17.0_{secret}"),
        format!("rft_18446744073709551633_{secret}"),
        format!("rft_17_{}", &secret[..42]),
        format!("rft_17_{secret}{secret}"),
        "rft_".to_owned(),
        "rft__".to_owned(),
        "rft_17_".to_owned(),
    ] {
        site.assert_refused(&wrong, "malformed cluster token");
    }
    // In another case it is taken for a JWT, which this node does not take.
    site.assert_refused(&text.to_uppercase(), "takes no JWTs");
}

#[test]
fn a_flood_of_wrong_secrets_does_not_lock_out_the_owner_elsewhere() {
    let site = site();
    let token = made(&site, 1, None);
    let attacker = Peer::bare();
    let wrong = BearerToken {
        id: 1,
        secret: TokenSecret::generate(),
    };
    for _ in 0..5_000 {
        assert!(site.prove_on(&attacker, &wrong.to_text(), NOW).is_err());
    }
    assert!(site.prove(&token.to_text()).is_ok());
    assert_eq!(site.prover.figures().limited, 4_990);
}
