//! What is refused, and in which words.

use serde_json::json;

use super::calls::open;
use super::client::Http;
use crate::process::single;

#[tokio::test]
async fn fields_are_refused_by_name_and_no_secret_is_repeated() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let secret = "17.0b0102030405060708090a0b0c0d0e0g";
    let refused = [
        ("/v1/sessions", json!({ "tll": "15s" }), "tll"),
        ("/v1/sessions", json!({ "ttl": 15 }), "ttl"),
        ("/v1/sessions", json!({ "ttl": "15 s" }), "ttl"),
        ("/v1/sessions", json!({ "ttl": "10m" }), "ttl"),
        ("/v1/sessions", json!({ "ttl": "0s" }), "ttl"),
        (
            "/v1/acquire",
            json!({ "name": "x", "ttl": "15s", "wait": "25h" }),
            "wait",
        ),
        ("/v1/acquire", json!({ "ttl": "15s" }), "name"),
        ("/v1/acquire", json!({ "name": "x" }), "session"),
        (
            "/v1/acquire",
            json!({ "name": "a//b", "ttl": "15s" }),
            "name",
        ),
        (
            "/v1/acquire",
            json!({ "name": "x", "session": secret }),
            "session",
        ),
        (
            "/v1/release",
            json!({ "name": "x", "session": "1.00" }),
            "session",
        ),
        ("/v1/keep-alive", json!({}), "session"),
        ("/v1/revoke", json!({ "name": "x", "token": 1.5 }), "token"),
    ];
    for (path, body, field) in refused {
        let told = http.post(path, body).await;
        let problem = told.problem(400, "INVALID_ARGUMENT");
        assert_eq!(problem["details"]["field"], field, "{told:?}");
        assert!(!told.body.contains("0b0102"), "{told:?}");
    }
    // In a field of another kind, and as what all readers see.
    let handle = "17.0b0102030405060708090a0b0c0d0e0f";
    for (path, field) in [
        ("/v1/sessions", "ttl"),
        ("/v1/sessions", "identity"),
        ("/v1/acquire", "name"),
        ("/v1/acquire", "wait"),
        ("/v1/acquire", "data"),
        ("/v1/release", "token"),
        ("/v1/keep-alive", "acknowledged"),
        ("/v1/revoke", "reason"),
    ] {
        let told = http.post(path, json!({ field: handle })).await;
        let problem = told.problem(400, "INVALID_ARGUMENT");
        assert_eq!(problem["details"]["field"], field, "{told:?}");
        assert!(!told.body.contains("0b0102"), "{told:?}");
    }
    let (_, bare) = handle.split_once('.').unwrap();
    for (key, body) in [
        ("1", json!({ "name": "x", "ttl": bare })),
        (handle, json!({ "name": "x", "ttl": "15s" })),
        (handle, json!({ "name": "x", "session": handle })),
        (
            "1",
            json!({ "name": format!("{handle}//"), "session": handle }),
        ),
        ("1", json!({ handle: "x" })),
    ] {
        let keyed = http.with("Idempotency-Key", key);
        let told = keyed.post("/v1/acquire", body).await;
        told.problem(400, "INVALID_ARGUMENT");
        assert!(!told.body.contains("0b0102"), "{told:?}");
    }
    // A handle in a URL would stand in the logs of proxies.
    let in_url = http
        .ask("POST", "/v1/keep-alive?session=1.00", Some("{}".to_owned()))
        .await;
    in_url.problem(400, "INVALID_ARGUMENT");
    for url in [
        format!("leases/{handle}"),
        format!("leases/jobs%2F{handle}"),
        format!("nothing/{handle}"),
        format!("leases?session={handle}"),
        format!("leases?prefix={handle}"),
        format!("leases?{handle}"),
    ] {
        let told = http.get(&format!("/v1/{url}")).await;
        let problem = told.problem(400, "INVALID_ARGUMENT");
        assert!(
            problem["detail"].as_str().unwrap().contains("logs"),
            "{told:?}"
        );
        assert!(!told.body.contains("0b0102"), "{told:?}");
    }
    let logged = node.logged();
    assert!(!logged.contains("0b0102"), "{logged}");
}

#[tokio::test]
async fn a_refusal_says_what_is_allowed_in_words_of_http() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http, "60s").await;
    let duration =
        "a whole number and its unit ms, s, m or h, as in 500ms or 30s, below 2^64 ms in all";
    for (url, field, allowed) in [
        ("leases?limit=0", "limit", "1 to 10000"),
        ("leases?limit=10001", "limit", "1 to 10000"),
        ("history/a?limit=0", "limit", "1 to 1000"),
        ("leases?page=x", "page", "next_page of the page before"),
        (
            "leases?max_staleness=18446744073709551615h",
            "max_staleness",
            duration,
        ),
        ("history?token=0", "token", "1 to 9223372036854775807"),
        (
            "openapi.json?x=1",
            "x",
            "what /v1/openapi.json lists for this call",
        ),
        (
            "leases?=1",
            "parameter",
            "what /v1/openapi.json lists for this call",
        ),
    ] {
        let told = http.get(&format!("/v1/{url}")).await;
        let details = &told.problem(400, "INVALID_ARGUMENT")["details"];
        assert_eq!(
            (&details["field"], &details["allowed"]),
            (&json!(field), &json!(allowed)),
            "{url}"
        );
    }
    let long = http
        .post("/v1/sessions", json!({ "ttl": "18446744073709551615h" }))
        .await;
    assert_eq!(
        long.problem(400, "INVALID_ARGUMENT")["details"]["allowed"],
        duration
    );

    let wanted = json!({ "name": "db", "session": session });
    for key in ["0", "9223372036854775808", "18446744073709551615"] {
        let keyed = http.with("Idempotency-Key", key);
        let refused = keyed.post("/v1/acquire", wanted.clone()).await;
        let refused = refused.problem(400, "INVALID_ARGUMENT");
        assert_eq!(refused["details"]["field"], "Idempotency-Key", "{refused}");
    }
    // The greatest number is the last one.
    let last = http.with("Idempotency-Key", "9223372036854775807");
    last.post("/v1/acquire", wanted.clone()).await.ok();
    let late = http
        .with("Idempotency-Key", "7")
        .post("/v1/acquire", wanted)
        .await;
    let late = late.problem(409, "STALE_REQUEST");
    assert!(
        late["detail"]
            .as_str()
            .unwrap()
            .contains("open another session"),
        "{late}"
    );
}
