//! Who may make which call in HTTP, in the mode `enforced`: each call by a caller that may, by one
//! that may not, and by one whose credential proves nothing.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::access::Node;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Status, head and body of an answer. Of a stream only its beginning.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

/// Makes one call, in HTTP/1.0: its answers have no chunks.
pub(crate) fn ask(
    node: &Node,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> Told {
    let mut stream = TcpStream::connect(&node.client).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let token = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let body = match method {
        "POST" => body.to_string(),
        _ => String::new(),
    };
    let kind = "Content-Type: application/json";
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: node\r\nConnection: close\r\n{kind}\r\n\
         Content-Length: {length}\r\n{token}\r\n{body}"
    )
    .unwrap();
    let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
    let text = loop {
        let read = stream.read(&mut some).unwrap();
        bytes.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // A stream has no end; that it begins is an answer.
        let head = text.split_once("\r\n\r\n").map(|(head, _)| head);
        let is_stream = head.is_some_and(|head| head.contains("text/event-stream"));
        if read == 0 || is_stream {
            break text;
        }
    };
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Told {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

pub(crate) fn json_of(told: &Told) -> Value {
    serde_json::from_str(&told.body).unwrap_or_else(|why| panic!("{why}: {told:?}"))
}

/// A call, and what a caller without the right is answered.
struct Row {
    method: &'static str,
    /// As OpenAPI writes it.
    route: &'static str,
    path: String,
    body: Value,
    denied: u16,
}

fn row(method: &'static str, route: &'static str, path: &str, body: Value) -> Row {
    let (path, denied) = (path.to_owned(), 403);
    Row {
        method,
        route,
        path,
        body,
        denied,
    }
}

#[test]
fn each_call_is_answered_to_who_may_make_it_and_to_no_other() {
    let node = Node::start(&["--failed-proofs-max=1000"]);
    let token = |name: &str| {
        let made = node.local(&["access", "token", "create", name]).object();
        made["token"].as_str().unwrap().to_owned()
    };
    let (alice, mallory) = (token("alice"), token("mallory"));
    for verb in ["acquire", "observe", "revoke"] {
        node.local(&["access", "grant", "token:alice", verb, "team/*"])
            .object();
    }
    node.local(&["access", "mode", "enforced"]).object();
    let by_alice = |path: &str, body: Value| {
        let told = ask(&node, Some(&alice), "POST", path, &body);
        assert!([200, 201].contains(&told.status), "{path}: {told:?}");
        json_of(&told)
    };
    let session = by_alice("/v1/sessions", json!({ "ttl": "60s" }))["session"].clone();
    let taken = by_alice(
        "/v1/acquire",
        json!({ "name": "team/1", "session": session }),
    );
    let token = taken["token"].clone();
    let ends = |name: &str| {
        let wanted = json!({ "name": name, "session": session });
        let token = by_alice("/v1/acquire", wanted)["token"].clone();
        json!({ "name": name, "token": token, "session": session })
    };
    // A caller with another's handle has no more rights than without it.
    let in_session = json!({ "session": session });
    let mut unnamed = ends("team/3");
    unnamed.as_object_mut().unwrap().remove("session");
    let spare = by_alice("/v1/sessions", json!({ "ttl": "60s" }))["session"].clone();
    let get = |route, path: &str| row("GET", route, path, Value::Null);
    let rows = [
        row(
            "POST",
            "/v1/sessions",
            "/v1/sessions",
            json!({ "ttl": "15s" }),
        ),
        row(
            "POST",
            "/v1/keep-alive",
            "/v1/keep-alive",
            in_session.clone(),
        ),
        row(
            "POST",
            "/v1/acquire",
            "/v1/acquire",
            json!({ "name": "team/9", "session": session }),
        ),
        row(
            "POST",
            "/v1/acquire",
            "/v1/acquire",
            json!({ "name": "team/10", "ttl": "15s" }),
        ),
        row(
            "POST",
            "/v1/cancel",
            "/v1/cancel",
            json!({ "session": session, "request": 1 }),
        ),
        row("POST", "/v1/release", "/v1/release", ends("team/2")),
        row("POST", "/v1/transfer", "/v1/transfer", ends("team/4")),
        row("POST", "/v1/revoke", "/v1/revoke", unnamed),
        row(
            "POST",
            "/v1/close",
            "/v1/close",
            json!({ "session": spare }),
        ),
        get("/v1/leases", "/v1/leases?prefix=team/"),
        get("/v1/leases/{name}", "/v1/leases/team/1"),
        get(
            "/v1/check/{name}/{token}",
            &format!("/v1/check/team/1/{token}"),
        ),
        get("/v1/history/{name}", "/v1/history/team/1"),
        get("/v1/watch", "/v1/watch?prefix=team/"),
        get("/v1/floors", "/v1/floors?prefix=team/"),
        // A token that may not be seen looks as one that is not there.
        Row {
            denied: 200,
            ..get("/v1/history", &format!("/v1/history?token={token}"))
        },
        // It says nothing of the cluster.
        Row {
            denied: 200,
            ..get("/v1/openapi.json", "/v1/openapi.json")
        },
    ];
    let description = json_of(&ask(
        &node,
        Some(&alice),
        "GET",
        "/v1/openapi.json",
        &Value::Null,
    ));
    let described = description["paths"].as_object().unwrap();
    let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
    assert_eq!(described, rows.iter().map(|row| row.route).collect());

    for Row {
        method,
        path,
        body,
        denied,
        ..
    } in &rows
    {
        let ask = |token| ask(&node, token, method, path, body);
        let last = if alice.ends_with('0') { '1' } else { '0' };
        let stranger = format!("{}{last}", &alice[..alice.len() - 1]);
        for bad in ["rft_1_0b0b", "garbage", stranger.as_str()] {
            let told = ask(Some(bad));
            assert_eq!(told.status, 401, "{method} {path}: {told:?}");
            assert_eq!(json_of(&told)["reason"], "UNAUTHENTICATED");
            assert!(told.head.contains("www-authenticate: bearer"), "{told:?}");
        }
        for other in [Some(mallory.as_str()), None] {
            let told = ask(other);
            assert_eq!(told.status, *denied, "{method} {path}: {told:?}");
            match *denied {
                403 => assert_eq!(json_of(&told)["reason"], "PERMISSION_DENIED", "{told:?}"),
                _ if path.contains("history") => assert_eq!(json_of(&told)["records"], json!([])),
                _ => {}
            }
        }
        let told = ask(Some(&alice));
        let not_waiting = path == "/v1/transfer" && json_of(&told)["reason"] == "NOT_WAITING";
        assert!(
            not_waiting || [200, 201].contains(&told.status),
            "{method} {path}: {told:?}"
        );
    }
}
