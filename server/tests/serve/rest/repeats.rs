//! Repeats of requests that open a session: of the same request, of a changed one, and late ones.

use serde_json::{Value, json};

use super::client::Http;
use crate::api::Api;
use crate::process::single;
use ringfence_proto::v1;

const SECRET: &str = "0b0102030405060708090a0b0c0d0e0f";

fn keyed(http: &Http, digit: u8) -> Http {
    let key = format!("{digit}e03978e-40d5-43e8-bc93-6894a57f9324");
    http.with("Idempotency-Key", &key)
}

/// The members of one object with those of another one.
fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

#[tokio::test]
async fn a_changed_request_is_not_answered_with_the_grant_of_its_key() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    for (digit, wait) in [(1, json!({})), (2, json!({ "wait": "10s" }))] {
        let keyed = keyed(&http, digit);
        let name = format!("db/{digit}");
        let wanted =
            json!({ "name": name, "ttl": "60s", "secret": SECRET, "identity": "a", "data": "x" });
        let wanted = with(&wanted, wait);
        let granted = keyed.post("/v1/acquire", wanted.clone()).await.ok();
        for change in [
            json!({ "name": "other" }),
            json!({ "ttl": "30s" }),
            json!({ "identity": "b" }),
            json!({ "data": "y" }),
            json!({ "lock_delay": "5s" }),
            json!({ "wait": "9s" }),
        ] {
            let changed = keyed.post("/v1/acquire", with(&wanted, change)).await;
            changed.problem(422, "REQUEST_MISMATCH");
        }
        let again = keyed.post("/v1/acquire", wanted).await.ok();
        assert_eq!(granted["token"], again["token"]);
    }
    let opened = keyed(&http, 3);
    let wanted = json!({ "ttl": "60s", "secret": SECRET });
    opened.post("/v1/sessions", wanted.clone()).await.ok();
    let shorter = with(&wanted, json!({ "ttl": "30s" }));
    opened
        .post("/v1/sessions", shorter)
        .await
        .problem(422, "REQUEST_MISMATCH");
    opened.post("/v1/sessions", wanted).await.ok();
}

#[tokio::test]
async fn a_late_repeat_of_what_was_given_up_since_is_refused() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    for (digit, wait) in [(1, json!({})), (2, json!({ "wait": "10s" }))] {
        let keyed = keyed(&http, digit);
        let wanted = json!({ "name": "db", "ttl": "60s", "secret": SECRET });
        let wanted = with(&wanted, wait);
        let granted = keyed.post("/v1/acquire", wanted.clone()).await.ok();
        let (token, session) = (&granted["token"], &granted["session"]);
        let release = json!({ "name": "db", "token": token, "session": session });
        http.post("/v1/release", release).await.ok();
        let late = keyed.post("/v1/acquire", wanted).await;
        let late = late.problem(409, "STALE_REQUEST");
        assert!(
            late["detail"].as_str().unwrap().contains("another key"),
            "{late}"
        );
        assert_eq!(http.get("/v1/leases/db").await.ok().get("held"), None);
    }
}

#[tokio::test]
async fn an_opening_acquire_in_grpc_is_repeated_unchanged_or_refused() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let open = v1::OpenRequest {
        id: vec![7; 16].into(),
        secret: vec![8; 16].into(),
        ttl_ms: Some(60_000),
        ..v1::OpenRequest::default()
    };
    let acquire = |name: &str| v1::AcquireRequest {
        open: Some(open.clone()),
        number: 1,
        lowest: 1,
        name: name.to_owned(),
        ..v1::AcquireRequest::default()
    };
    let granted = api
        .leases
        .acquire(acquire("db"))
        .await
        .unwrap()
        .into_inner();
    let reason = |status: tonic::Status| ringfence_proto::Refusal::from_status(&status).unwrap();
    let other = reason(api.leases.acquire(acquire("web")).await.unwrap_err());
    assert_eq!(other.reason, v1::Reason::RequestMismatch, "{other}");
    let session = granted.opened.unwrap().session;
    let release = v1::ReleaseRequest {
        session: Some(v1::SessionHandle {
            session,
            secret: open.secret.clone(),
        }),
        number: 2,
        lowest: 2,
        name: "db".to_owned(),
        token: granted.grant.unwrap().token,
        close_session: false,
    };
    api.leases.release(release).await.unwrap();
    let late = reason(api.leases.acquire(acquire("db")).await.unwrap_err());
    assert_eq!(late.reason, v1::Reason::StaleRequest, "{late}");
    assert_eq!(late.metadata["session"], session.to_string());
}

#[tokio::test]
async fn a_repeat_behind_a_refusal_says_that_another_key_is_needed() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let held = json!({ "name": "db", "ttl": "60s" });
    http.post("/v1/acquire", held).await.ok();
    let keyed = keyed(&http, 1);
    let wanted = json!({ "name": "db", "ttl": "60s", "secret": SECRET });
    let refused = keyed.post("/v1/acquire", wanted.clone()).await;
    refused.problem(409, "HELD");
    // Its session was closed, so that no lease is held under this key.
    let again = keyed.post("/v1/acquire", wanted).await;
    let again = again.problem(409, "OPEN_ID_USED");
    let told = again["detail"].as_str().unwrap();
    assert!(told.contains("nothing is held"), "{told}");
    assert!(told.contains("another key"), "{told}");
}
