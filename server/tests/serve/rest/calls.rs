//! Each call, as a client of any language makes it.

use std::time::Duration;

use ringfence_proto::v1;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::client::Http;
use crate::api::Api;
use crate::process::{PATIENCE, single};

/// The session handle in an answer.
fn session(answer: &Value) -> String {
    answer["session"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

pub(super) async fn open(http: &Http, ttl: &str) -> String {
    let opened = http
        .post("/v1/sessions", json!({ "ttl": ttl, "identity": "alice" }))
        .await;
    assert_eq!(opened.status, 201, "{opened:?}");
    session(&opened.ok())
}

#[tokio::test]
async fn a_lease_is_acquired_kept_and_released() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let opened = http
        .post("/v1/sessions", json!({"ttl": "15s", "identity": "a"}))
        .await
        .ok();
    assert_eq!(
        (&opened["valid_for_ms"], &opened["ttl_ms"]),
        (&json!(14_550), &json!(15_000))
    );
    let session = session(&opened);
    let (number, secret) = session.split_once('.').unwrap();
    assert!(
        number.parse::<u64>().is_ok() && secret.len() == 32,
        "{session}"
    );

    let wanted = json!({ "name": "bank/x", "session": session, "data": "10.0.0.1:80" });
    let granted = http.post("/v1/acquire", wanted).await.ok();
    let token = granted["token"].as_u64().unwrap();
    assert_eq!(granted["name"], "bank/x");
    assert_eq!(granted["fence"], format!("bank/x#{token}"));
    assert_eq!(granted["session"], session);
    // A little more than the window, since the keep-alive left a little after the request came.
    let valid = granted["valid_for_ms"].as_u64().unwrap();
    assert!((14_550..20_000).contains(&valid), "{valid}");

    let kept = http
        .post("/v1/keep-alive", json!({ "session": session }))
        .await
        .ok();
    assert!(kept["valid_for_ms"].as_u64().unwrap() >= 14_550, "{kept}");
    assert_eq!(kept["lost"], json!([]));

    let lease = http.get("/v1/leases/bank/x").await.ok();
    assert_eq!(lease["held"]["token"], token);
    assert_eq!(lease["held"]["data"], "10.0.0.1:80");
    assert_eq!(
        http.get(&format!("/v1/check/bank/x/{token}")).await.ok()["verdict"],
        "CURRENT"
    );

    let release = json!({ "name": "bank/x", "token": token, "session": session });
    http.post("/v1/release", release.clone()).await.ok();
    http.get(&format!("/v1/check/bank/x/{token}"))
        .await
        .problem(409, "STALE_TOKEN");
    http.post("/v1/release", release)
        .await
        .problem(409, "STALE_TOKEN");
    http.post("/v1/close", json!({ "session": session }))
        .await
        .ok();
    let over = http
        .post("/v1/keep-alive", json!({ "session": session }))
        .await;
    assert_eq!(
        over.problem(404, "SESSION_EXPIRED")["details"]["cause"],
        "CLOSED"
    );
}

#[tokio::test]
async fn a_held_lease_is_refused_with_its_holder_and_what_is_left() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let alice = open(&http, "60s").await;
    let wanted = json!({ "name": "db", "session": alice });
    let granted = http.post("/v1/acquire", wanted).await.ok();

    let wanted = json!({ "name": "db", "ttl": "15s", "identity": "bob" });
    let refused = http.post("/v1/acquire", wanted).await.problem(409, "HELD");
    let mut api = Api::of(&node).await;
    let all = api
        .sessions
        .list(v1::ListSessionsRequest::default())
        .await
        .unwrap();
    let all = all.into_inner().sessions;

    assert_eq!(refused["token"], granted["token"]);
    assert_eq!(refused["fence"], granted["fence"]);
    assert_eq!(refused["identity"], "alice");
    assert_eq!(
        refused["holder"].to_string(),
        alice.split_once('.').unwrap().0
    );
    let left = refused["left_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
    // The session that was opened for it is closed.
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(refused["details"].get("session"), None, "{refused}");
    let held = http.get("/v1/leases/db").await.ok();
    assert_eq!(held["held"]["identity"], "alice");
}

#[tokio::test]
async fn a_wait_with_a_session_of_its_own_outlives_the_ttl_of_that() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let alice = open(&http, "60s").await;
    let granted = http
        .post("/v1/acquire", json!({ "name": "db", "session": alice }))
        .await
        .ok();
    let waiting = {
        let http = http.clone();
        let wanted = json!({ "name": "db", "ttl": "1s", "wait": "30s", "identity": "bob" });
        tokio::spawn(async move { http.post("/v1/acquire", wanted).await })
    };
    // Three TTLs.
    sleep(Duration::from_secs(3)).await;
    let release = json!({ "name": "db", "token": granted["token"], "session": alice });
    http.post("/v1/release", release).await.ok();
    let second = waiting.await.unwrap().ok();
    assert!(
        second["token"].as_u64() > granted["token"].as_u64(),
        "{second}"
    );
    // Counted from before the request: the wait and what the last keep-alive gave.
    let valid = second["valid_for_ms"].as_u64().unwrap();
    assert!((3_500..60_000).contains(&valid), "{valid}");

    let gave_up = json!({ "name": "db", "ttl": "60s", "wait": "200ms" });
    http.post("/v1/acquire", gave_up)
        .await
        .problem(409, "WAIT_TIMEOUT");
}

#[tokio::test]
async fn a_repeat_under_its_key_has_one_effect_and_another_request_is_refused() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http, "60s").await;
    let first = http.with("Idempotency-Key", "1");
    let wanted = json!({ "name": "db", "session": session });
    let granted = first.post("/v1/acquire", wanted.clone()).await.ok();
    let again = first.post("/v1/acquire", wanted.clone()).await.ok();
    assert_eq!(
        (&granted["token"], &granted["request"]),
        (&again["token"], &json!(1))
    );
    let mine = http
        .with("Idempotency-Key", "\"2\"")
        .post("/v1/acquire", wanted)
        .await;
    assert_eq!(mine.problem(409, "HELD")["details"]["mine"], "true");
    let other = json!({ "name": "other", "session": session });
    http.with("Idempotency-Key", "2")
        .post("/v1/acquire", other)
        .await
        .problem(422, "REQUEST_MISMATCH");

    // Without a key every request is another one.
    for _ in 0..20 {
        let wanted = json!({ "name": "many", "session": session });
        let granted = http.post("/v1/acquire", wanted).await.ok();
        let token = granted["token"].clone();
        let release = json!({ "name": "many", "token": token, "session": session });
        http.post("/v1/release", release).await.ok();
    }
}

#[tokio::test]
async fn an_open_is_repeated_with_its_key_and_a_secret_of_the_caller() {
    let (node, _dir) = single().await;
    let key = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    let http = Http::of(&node).with("Idempotency-Key", key);
    let secret = "0b".repeat(16);
    let asked = json!({ "ttl": "15s", "secret": secret });
    let first = http.post("/v1/sessions", asked.clone()).await.ok();
    let again = http.post("/v1/sessions", asked).await.ok();
    assert_eq!(session(&first), session(&again));
    assert!(session(&first).ends_with(&secret));
    let without = http.post("/v1/sessions", json!({ "ttl": "15s" })).await;
    let refused = without.problem(400, "INVALID_ARGUMENT");
    assert_eq!(refused["details"]["field"], "secret");
}

#[tokio::test]
async fn reads_revokes_transfers_and_the_history_are_those_of_grpc() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let (alice, bob) = (open(&http, "60s").await, open(&http, "60s").await);
    let granted = http
        .post("/v1/acquire", json!({ "name": "t/1", "session": alice }))
        .await
        .ok();
    let waiting = {
        let (http, wanted) = (
            http.clone(),
            json!({ "name": "t/1", "session": bob, "wait": "30s" }),
        );
        tokio::spawn(async move { http.post("/v1/acquire", wanted).await })
    };
    while http.get("/v1/leases/t%2F1").await.ok()["waiters"] != 1 {
        sleep(Duration::from_millis(20)).await;
    }
    let hand_over = json!({ "name": "t/1", "token": granted["token"], "session": alice });
    let moved = http.post("/v1/transfer", hand_over).await.ok();
    let second = waiting.await.unwrap().ok();
    assert_eq!(moved["token"], second["token"]);
    assert_eq!(
        moved["to_session"].to_string(),
        bob.split_once('.').unwrap().0
    );

    let revoke = json!({ "name": "t/1", "token": second["token"], "reason": "stuck", "now": true });
    http.post("/v1/revoke", revoke).await.ok();
    let kept = http
        .post("/v1/keep-alive", json!({ "session": bob }))
        .await
        .ok();
    assert_eq!(kept["lost"][0]["token"], second["token"], "{kept}");
    assert_eq!(kept["lost"][0]["cause"]["kind"], "REVOKED");
    let told = json!({ "session": bob, "acknowledged": [second["token"]] });
    http.post("/v1/keep-alive", told).await.ok();
    let kept = http
        .post("/v1/keep-alive", json!({ "session": bob }))
        .await
        .ok();
    assert_eq!(kept["lost"], json!([]));

    let records = loop {
        let answer = http.get("/v1/history/t/1?limit=10").await.ok();
        let records = answer["records"].as_array().unwrap().clone();
        if records.len() == 2 && records[0].get("cause").is_some() {
            break records;
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(records[0]["cause"]["reason"], "stuck");
    assert_eq!(records[1]["cause"]["kind"], "TRANSFERRED");
    let token = &records[0]["token"];
    let by_token = http.get(&format!("/v1/history?token={token}")).await.ok();
    assert_eq!(by_token["records"][0], records[0]);

    for n in 2..=5 {
        let wanted = json!({ "name": format!("t/{n}"), "session": alice });
        http.post("/v1/acquire", wanted).await.ok();
    }
    let (mut names, mut page) = (Vec::new(), String::new());
    loop {
        let listed = http
            .get(&format!("/v1/leases?prefix=t/&limit=2{page}"))
            .await
            .ok();
        for lease in listed["leases"].as_array().unwrap() {
            names.push(lease["name"].as_str().unwrap().to_owned());
        }
        let Some(next) = listed.get("next_page") else {
            break;
        };
        page = format!("&page={}", next.as_str().unwrap());
    }
    assert_eq!(names, ["t/1", "t/2", "t/3", "t/4", "t/5"]);
    http.get("/v1/leases/never").await.problem(404, "NOT_FOUND");
    http.get("/v1/leases?prefx=t")
        .await
        .problem(400, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_caller_that_goes_while_it_waits_leaves_no_ghost() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let (alice, bob) = (open(&http, "60s").await, open(&http, "60s").await);
    let granted = http
        .post("/v1/acquire", json!({ "name": "db", "session": alice }))
        .await
        .ok();
    for wanted in [
        json!({ "name": "db", "session": bob, "wait": "10m" }),
        json!({ "name": "db", "ttl": "60s", "wait": "10m" }),
    ] {
        let waiting = {
            let http = http.clone();
            tokio::spawn(async move { http.post("/v1/acquire", wanted).await })
        };
        while http.get("/v1/leases/db").await.ok()["waiters"] != 1 {
            sleep(Duration::from_millis(20)).await;
        }
        // Its connection breaks with it.
        waiting.abort();
        while http.get("/v1/leases/db").await.ok()["waiters"] != 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    let release = json!({ "name": "db", "token": granted["token"], "session": alice });
    http.post("/v1/release", release).await.ok();
    let free = http.get("/v1/leases/db").await.ok();
    assert_eq!(free.get("held"), None, "{free}");
}

/// hyper reads nothing behind a request while bytes of the next one are there.
#[tokio::test]
async fn a_caller_that_sends_more_behind_its_request_and_goes_leaves_no_ghost_either() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let alice = open(&http, "60s").await;
    let wanted = json!({ "name": "db", "session": alice });
    http.post("/v1/acquire", wanted).await.ok();
    let get = "GET /v1/leases HTTP/1.1\r\nHost: node\r\n\r\n";
    // More than is read ahead, and more than the kernel keeps for one that does not read.
    let many = get.repeat(10_000);
    for more in ["\r\n", get, many.as_str()] {
        let body = json!({ "name": "db", "ttl": "60s", "wait": "10m" }).to_string();
        let request = format!(
            "POST /v1/acquire HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}{more}",
            body.len()
        );
        let mut stream = TcpStream::connect(&http.address).await.unwrap();
        // The last one may not find room for all of it.
        let all = timeout(Duration::from_secs(1), stream.write_all(request.as_bytes())).await;
        drop(all);
        while http.get("/v1/leases/db").await.ok()["waiters"] != 1 {
            sleep(Duration::from_millis(20)).await;
        }
        drop(stream);
        let gone = async {
            while http.get("/v1/leases/db").await.ok()["waiters"] != 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, gone).await.expect("no ghost");
    }
}

/// A key belongs to its call: what `sessions` opened under it, `acquire` neither uses nor closes.
#[tokio::test]
async fn the_key_of_a_session_names_another_one_in_an_acquire() {
    let (node, _dir) = single().await;
    let http = Http::of(&node).with("Idempotency-Key", "21234567-89ab-4def-8123-456789abcdef");
    let plain = Http::of(&node);
    let secret = "00112233445566778899aabbccddeeff";
    let opened = json!({ "ttl": "60s", "secret": secret });
    let session = http.post("/v1/sessions", opened).await.ok()["session"].clone();
    let wanted = json!({ "name": "own", "session": session });
    let own = plain.post("/v1/acquire", wanted).await.ok();
    let other = open(&plain, "60s").await;
    let held = json!({ "name": "held", "session": other });
    plain.post("/v1/acquire", held).await.ok();
    for wait in [None, Some("100ms")] {
        let mut wanted = json!({ "name": "held", "ttl": "60s", "secret": secret });
        if let Some(wait) = wait {
            wanted["wait"] = wait.into();
        }
        let refused = http.post("/v1/acquire", wanted).await;
        assert_eq!(refused.status, 409, "{refused:?}");
    }
    let kept = plain
        .post("/v1/keep-alive", json!({ "session": session }))
        .await
        .ok();
    assert_eq!(kept["lost"], json!([]), "{kept}");
    let token = &own["token"];
    assert_eq!(
        plain.get("/v1/leases/own").await.ok()["held"]["token"],
        *token
    );
}

/// Whatever a later try under the key is refused for, an earlier one may have been granted the lease.
#[tokio::test]
async fn another_request_under_a_key_ends_nothing_that_the_first_one_was_granted() {
    let (node, _dir) = single().await;
    let key = "01234567-89ab-4def-8123-456789abcdef";
    let http = Http::of(&node).with("Idempotency-Key", key);
    let secret = "00112233445566778899aabbccddeeff";
    let wanted = |name: &str, wait: Option<&str>| {
        let mut body = json!({ "name": name, "ttl": "60s", "secret": secret });
        if let Some(wait) = wait {
            body["wait"] = wait.into();
        }
        body
    };
    let first = wanted("a", Some("1s"));
    let granted = http.post("/v1/acquire", first.clone()).await.ok();
    for other in [wanted("a", Some("2s")), wanted("b", Some("1s"))] {
        let refused = http.post("/v1/acquire", other).await;
        refused.problem(422, "REQUEST_MISMATCH");
    }
    let again = http.post("/v1/acquire", first).await.ok();
    assert_eq!(again["fence"], granted["fence"]);
    let http = Http::of(&node).with("Idempotency-Key", "11234567-89ab-4def-8123-456789abcdef");
    let granted = http.post("/v1/acquire", wanted("c", None)).await.ok();
    let refused = http.post("/v1/acquire", wanted("d", None)).await;
    refused.problem(422, "REQUEST_MISMATCH");
    let again = http.post("/v1/acquire", wanted("c", None)).await.ok();
    assert_eq!(again["fence"], granted["fence"]);
}

/// The session has confirmed the number of the wait by then, and remembers its end no more.
#[tokio::test]
async fn a_wait_that_ends_behind_later_requests_is_answered_all_the_same() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let (alice, bob) = (open(&http, "60s").await, open(&http, "60s").await);
    let wanted = json!({ "name": "db", "session": alice });
    http.post("/v1/acquire", wanted).await.ok();
    let wait = |http: Http, wait: &str| {
        let wanted = json!({ "name": "db", "session": bob, "wait": wait });
        tokio::spawn(async move { http.post("/v1/acquire", wanted).await })
    };
    let queued = async || {
        while http.get("/v1/leases/db").await.ok()["waiters"] != 1 {
            sleep(Duration::from_millis(20)).await;
        }
    };

    let taken_back = wait(http.with("Idempotency-Key", "1"), "10m");
    queued().await;
    let cancel = json!({ "request": 1, "session": bob });
    let cancelled = http
        .with("Idempotency-Key", "2")
        .post("/v1/cancel", cancel)
        .await
        .ok();
    assert_eq!(cancelled["result"], "REMOVED");
    let told = timeout(PATIENCE, taken_back).await.expect("an answer");
    told.unwrap().problem(409, "CANCELLED");

    let too_long = wait(http.clone(), "2s");
    queued().await;
    let other = json!({ "name": "other", "session": bob });
    http.post("/v1/acquire", other).await.ok();
    let told = timeout(PATIENCE, too_long).await.expect("an answer");
    told.unwrap().problem(409, "WAIT_TIMEOUT");
}
