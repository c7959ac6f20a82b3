//! Watches as server-sent events, through whatever cuts them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Http, unchunked};
use crate::process::{PATIENCE, single};

/// One event.
#[derive(Clone, Debug)]
struct Event {
    kind: String,
    id: Option<String>,
    data: Value,
}

/// The whole events in a text; the last one may be cut.
fn events(text: &str) -> Vec<Event> {
    let whole = text.rfind("\n\n").map_or("", |at| &text[..at]);
    let blocks = whole
        .split("\n\n")
        .filter(|block| block.contains("event: "));
    let read = blocks.map(|block| {
        let field = |name: &str| {
            let found = block.lines().find_map(|line| line.strip_prefix(name));
            found.map(ToOwned::to_owned)
        };
        Event {
            kind: field("event: ").unwrap(),
            id: field("id: "),
            data: serde_json::from_str(&field("data: ").unwrap()).unwrap(),
        }
    });
    read.collect()
}

/// Reads a stream of events for so long, and cuts it.
async fn read_for(http: &Http, path: &str, last: Option<&str>, time: Duration) -> Vec<Event> {
    let mut stream = TcpStream::connect(&http.address).await.unwrap();
    let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
    let head = format!("GET {path} HTTP/1.1\r\nHost: node\r\n{last}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let reading = async { while stream.read_buf(&mut bytes).await.unwrap() > 0 {} };
    let ended = timeout(time, reading).await.is_ok();
    assert!(!ended, "{}", String::from_utf8_lossy(&bytes));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    assert!(
        head.is_empty() || head.starts_with("HTTP/1.1 200"),
        "{text}"
    );
    events(&unchunked(body))
}

/// Acquires and releases a lease so many times; the tokens.
async fn churn(http: &Http, session: &str, name: &str, times: usize) -> Vec<u64> {
    let mut tokens = Vec::new();
    for _ in 0..times {
        let wanted = json!({ "name": name, "session": session });
        let granted = http.post("/v1/acquire", wanted).await.ok();
        let token = granted["token"].as_u64().unwrap();
        let release = json!({ "name": name, "token": token, "session": session });
        http.post("/v1/release", release).await.ok();
        tokens.push(token);
    }
    tokens
}

async fn open(http: &Http) -> String {
    let opened = http
        .post("/v1/sessions", json!({ "ttl": "60s" }))
        .await
        .ok();
    opened["session"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_watch_begins_with_what_is_held_and_tells_each_grant_and_end() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http).await;
    let held = json!({ "name": "a/held", "session": session });
    let held = http.post("/v1/acquire", held).await.ok();
    http.post(
        "/v1/acquire",
        json!({ "name": "b/other", "session": session }),
    )
    .await
    .ok();
    let reading = {
        let http = http.clone();
        let time = Duration::from_secs(5);
        tokio::spawn(async move { read_for(&http, "/v1/watch?prefix=a/", None, time).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tokens = churn(&http, &session, "a/x", 2).await;
    let told = reading.await.unwrap();

    let present = &told[0];
    assert_eq!((present.kind.as_str(), &present.id), ("present", &None));
    assert_eq!(present.data["held"]["token"], held["token"]);
    assert_eq!(
        (told[1].kind.as_str(), told[1].id.is_some()),
        ("position", true)
    );
    let changes: Vec<_> = told
        .iter()
        .filter(|event| event.kind != "position")
        .skip(1)
        .collect();
    let seen: Vec<_> = changes
        .iter()
        .map(|event| (event.kind.as_str(), &event.data["token"]))
        .collect();
    let [first, second] = [json!(tokens[0]), json!(tokens[1])];
    let expected = [
        ("granted", &first),
        ("ended", &first),
        ("granted", &second),
        ("ended", &second),
    ];
    assert_eq!(seen, expected);
    assert_eq!(changes[1].data["cause"]["kind"], "RELEASED");
    // A reader, and a proxy, hear something at least every second.
    let positions = told.iter().filter(|event| event.kind == "position").count();
    assert!(positions >= 4, "{told:?}");
}

#[tokio::test]
async fn a_reader_that_is_cut_again_and_again_sees_each_event_once() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http).await;
    let begun = read_for(&http, "/v1/watch", None, Duration::from_millis(500)).await;
    let mut last = begun.last().unwrap().id.clone();
    let writing = {
        let (http, session) = (http.clone(), session.clone());
        tokio::spawn(async move { churn(&http, &session, "db", 40).await })
    };
    let mut seen = Vec::new();
    // As a proxy that cuts streams after a while; here every some milliseconds, at any byte.
    let reading = async {
        while seen.len() < 80 {
            let time = Duration::from_millis(20 + rand_below(300));
            for event in read_for(&http, "/v1/watch?prefix=", last.as_deref(), time).await {
                assert_ne!(event.kind, "present", "it begins again: {event:?}");
                last = event.id.clone().or(last.take());
                if event.kind != "position" {
                    seen.push((event.kind, event.data["token"].as_u64().unwrap()));
                }
            }
        }
    };
    timeout(2 * PATIENCE, reading).await.expect("all events");
    let tokens = writing.await.unwrap();
    let expected = tokens
        .into_iter()
        .flat_map(|token| [("granted".to_owned(), token), ("ended".to_owned(), token)]);
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

fn rand_below(max: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) % max
}

#[tokio::test]
async fn floors_are_complete_and_then_follow_each_grant() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http).await;
    let tokens = churn(&http, &session, "a/1", 1).await;
    let reading = {
        let http = http.clone();
        let time = Duration::from_secs(4);
        tokio::spawn(async move { read_for(&http, "/v1/floors?prefix=a/", None, time).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = churn(&http, &session, "a/2", 1).await;
    let told = reading.await.unwrap();
    assert!(told.iter().all(|event| event.kind == "floors"), "{told:?}");
    let first = told
        .iter()
        .position(|event| event.data["complete"] == true)
        .unwrap();
    let floors = |events: &[Event]| {
        let floors = events
            .iter()
            .flat_map(|event| event.data["floors"].as_array().unwrap());
        floors
            .map(|floor| floor["fence"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(floors(&told[..=first]), [format!("a/1#{}", tokens[0])]);
    assert_eq!(floors(&told[first + 1..]), [format!("a/2#{}", later[0])]);
}

#[tokio::test]
async fn a_position_that_is_none_or_of_another_cluster_is_refused_with_a_status() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let garbage = http
        .with("Last-Event-ID", "yesterday")
        .get("/v1/watch")
        .await;
    garbage.problem(400, "INVALID_ARGUMENT");
    let other = format!("{}.5.0", "0b".repeat(16));
    for path in ["/v1/watch", "/v1/floors"] {
        let refused = timeout(PATIENCE, http.with("Last-Event-ID", &other).get(path)).await;
        refused.unwrap().problem(409, "CLUSTER_CHANGED");
    }
    let refused = http.get(&format!("/v1/watch?from={other}")).await;
    refused.problem(409, "CLUSTER_CHANGED");
}

#[tokio::test]
async fn a_handle_that_names_another_cluster_is_refused_by_every_call() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let session = open(&http).await;
    let acquired = http
        .post("/v1/acquire", json!({ "session": session, "name": "job" }))
        .await;
    let token = acquired.ok()["token"].clone();
    let other = format!("{session}.{}", "0b".repeat(16));
    let calls = [
        ("/v1/acquire", json!({ "session": other, "name": "b" })),
        (
            "/v1/release",
            json!({ "session": other, "name": "job", "token": token }),
        ),
        (
            "/v1/transfer",
            json!({ "session": other, "name": "job", "token": token, "to_session": 7 }),
        ),
        ("/v1/cancel", json!({ "session": other, "request": 1 })),
        ("/v1/keep-alive", json!({ "session": other })),
        ("/v1/close", json!({ "session": other })),
    ];
    for (path, body) in calls {
        let refused = http.post(path, body).await;
        refused.problem(409, "CLUSTER_CHANGED");
    }
    let kept = http.post("/v1/keep-alive", json!({ "session": session }));
    assert_eq!(kept.await.ok()["lost"], json!([]), "nothing was done");
}
