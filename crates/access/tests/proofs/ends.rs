//! The end of a credential within a stream.

use std::time::Duration;

use ringfence_access::{LEEWAY, now_unix, until_expiry};
use serde_json::json;

use crate::support::{SigningKey, Site, claims_but};

#[tokio::test]
async fn attack_10_a_token_that_expires_within_a_stream_ends_it() {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    let now = now_unix();
    // It is refused from two seconds on.
    let token = key.token(&claims_but("exp", json!(now + 2 - LEEWAY)));
    let proven = site.prove_at(&token, now).unwrap();
    tokio::time::timeout(Duration::from_secs(10), until_expiry(&proven))
        .await
        .unwrap();
    assert!(now_unix() >= now + 2);
    assert!(!proven.holds_at(now_unix()));
    assert!(site.prove_at(&token, now_unix()).is_err());
}
