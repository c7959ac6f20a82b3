//! Old clients, strange ones and hostile ones.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::transport::Channel;
use tower::ServiceExt;

use super::client::{Http, parsed, told};
use crate::api::Api;
use crate::process::{PATIENCE, single};

const MIB: usize = 1 << 20;
/// How long a node waits for a head, for a body, and for the next request.
const SLOW_MAX: Duration = Duration::from_secs(30);

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n");
    format!("{head}Connection: close\r\n{headers}\r\n{body}").into_bytes()
}

#[tokio::test]
async fn http_1_0_is_answered_and_its_connection_ends() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let listed = http.send(b"GET /v1/leases HTTP/1.0\r\n\r\n").await;
    assert_eq!(listed.ok()["leases"], json!([]));
    let body = r#"{"ttl":"15s"}"#;
    let opened = format!(
        "POST /v1/sessions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(http.send(opened.as_bytes()).await.status, 201);
    // Events come without chunks, until the connection ends.
    let mut stream = TcpStream::connect(&http.address).await.unwrap();
    stream
        .write_all(b"GET /v1/watch HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    // Longer than a connection may take to begin.
    let read = async {
        while String::from_utf8_lossy(&bytes)
            .matches("event: position")
            .count()
            < 16
        {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
    };
    timeout(2 * PATIENCE, read).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.to_lowercase().contains("chunked"), "{text}");
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_told_to_go_on_or_refused_before_it_sends() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let body = r#"{"ttl":"15s"}"#;
    let head = |bytes: usize| {
        post(
            "/v1/sessions",
            &format!("Expect: 100-continue\r\nContent-Length: {bytes}\r\n"),
            "",
        )
    };

    let mut stream = TcpStream::connect(&http.address).await.unwrap();
    stream.write_all(&head(body.len())).await.unwrap();
    let mut go_on = [0; 25];
    timeout(PATIENCE, stream.read_exact(&mut go_on))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(told(&mut stream).await.status, 201);

    let refused = http.send(&head(MIB + 1)).await;
    refused.problem(413, "LIMIT");
    let unwanted = b"POST /v1/nothing HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
    http.send(unwanted).await.problem(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_body_comes_whole_or_in_chunks_and_has_at_most_a_mebibyte() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let chunked = "Transfer-Encoding: chunked\r\n";
    let pieces = "7\r\n{\"ttl\":\r\n6;x=y\r\n\"15s\"}\r\n0\r\n\r\n";
    assert_eq!(
        http.send(&post("/v1/sessions", chunked, pieces))
            .await
            .status,
        201
    );

    let padded = |bytes: usize| format!("{{\"ttl\":\"15s\"{}}}", " ".repeat(bytes - 13));
    let sized = |bytes: usize| {
        post(
            "/v1/sessions",
            &format!("Content-Length: {bytes}\r\n"),
            &padded(bytes),
        )
    };
    assert_eq!(http.send(&sized(MIB)).await.status, 201);
    http.send(&sized(MIB + 1)).await.problem(413, "LIMIT");
    let endless = format!("{:x}\r\n{}\r\n", 2 * MIB, " ".repeat(2 * MIB));
    http.send(&post("/v1/sessions", chunked, &endless))
        .await
        .problem(413, "LIMIT");

    let broken = http
        .send(&post("/v1/sessions", chunked, "zz\r\n{}\r\n0\r\n\r\n"))
        .await;
    assert_eq!(broken.status, 400, "{broken:?}");
    // Two lengths: what a proxy and a node may read differently.
    let two = "Content-Length: 2\r\nContent-Length: 13\r\n";
    let refused = http.send(&post("/v1/sessions", two, "{}")).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    // Codings that are not undone here.
    for coding in ["gzip, chunked", "chunked, chunked", "identity, chunked"] {
        let coded = post(
            "/v1/sessions",
            &format!("Transfer-Encoding: {coding}\r\n"),
            pieces,
        );
        http.send(&coded).await.problem(400, "INVALID_ARGUMENT");
    }
    http.get("/v1/leases").await.ok();
}

#[tokio::test]
async fn what_is_no_call_is_refused_with_what_is() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    http.get("/v1/nothing").await.problem(404, "NOT_FOUND");
    http.get("/").await.problem(404, "NOT_FOUND");
    let told = http.get("/v1/acquire").await;
    told.problem(405, "INVALID_ARGUMENT");
    assert!(told.head.contains("\nallow: post"), "{told:?}");
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
        http.ask(method, "/v1/leases", None)
            .await
            .problem(405, "INVALID_ARGUMENT");
    }
    let form = b"POST /v1/sessions HTTP/1.1\r\nHost: n\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    http.send(form).await.problem(415, "INVALID_ARGUMENT");
    // A page in the browser of someone who reaches the node.
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Sec-Fetch-Site", "same-origin"),
    ] {
        let page = http.with(name, value);
        page.get("/v1/leases")
            .await
            .problem(403, "INVALID_ARGUMENT");
        page.post("/v1/sessions", json!({}))
            .await
            .problem(403, "INVALID_ARGUMENT");
    }
    // A page whose own name leads to this node reads without either.
    let get = |head: &str| {
        format!("GET /v1/leases HTTP/1.1\r\nConnection: close\r\n{head}\r\n").into_bytes()
    };
    for languages in ["en", "*", ""] {
        let rebound = format!("Host: evil.example:7420\r\nAccept-Language: {languages}\r\n");
        http.send(&get(&rebound))
            .await
            .problem(403, "INVALID_ARGUMENT");
    }
    for fine in [
        "Host: node.example:7420\r\nAccept-Language: *\r\nSec-Fetch-Mode: cors\r\n",
        "Host: node.example:7420\r\n",
        "Host: 127.0.0.1:7420\r\nAccept-Language: en\r\n",
    ] {
        http.send(&get(fine)).await.ok();
    }
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        http.send(&get(hosts))
            .await
            .problem(400, "INVALID_ARGUMENT");
    }
    let long = http
        .with("X-Long", &"x".repeat(17 << 10))
        .get("/v1/leases")
        .await;
    long.problem(431, "INVALID_ARGUMENT");
    let many = (0..200).fold(http.clone(), |http, n| http.with(&format!("X-{n}"), "y"));
    assert_eq!(many.get("/v1/leases").await.status, 431);
    http.get("/v1/leases/%ff")
        .await
        .problem(400, "INVALID_ARGUMENT");
    http.get("/v1/check/x/1e3")
        .await
        .problem(400, "INVALID_ARGUMENT");
    http.get("/v1/check/x")
        .await
        .problem(400, "INVALID_ARGUMENT");
    let described = http.get("/v1/openapi.json").await.ok();
    assert_eq!(described["openapi"], "3.1.0");
}

#[tokio::test]
async fn a_connection_is_used_again_and_http_2_is_the_same() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let mut stream = TcpStream::connect(&http.address).await.unwrap();
    let ask = b"GET /v1/leases HTTP/1.1\r\nHost: node\r\n\r\n";
    // Two at once, as a pipeline.
    stream
        .write_all(&[ask.as_slice(), ask].concat())
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let both = async {
        while String::from_utf8_lossy(&bytes)
            .matches("\"leases\":[]}")
            .count()
            < 2
        {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
    };
    timeout(PATIENCE, both).await.unwrap();

    let channel = Channel::from_shared(node.url())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let request = http::Request::get("/v1/leases")
        .body(Body::empty())
        .unwrap();
    let response = channel.oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, http::Version::HTTP_2)
    );

    // gRPC is answered as gRPC, whatever it asks for.
    let mut api = Api::of(&node).await;
    api.open("alice").await;
    let channel = Channel::from_shared(node.url())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let unknown = http::Request::post("/ringfence.v1.Nothing/Ask")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap();
    let response = channel.oneshot(unknown).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
}

/// Sends a byte every second, until the node has had enough of it, which it has within this time;
/// what it said at the end.
async fn trickle(http: &Http, begin: &[u8], byte: &[u8], within: Duration) -> String {
    let mut stream = TcpStream::connect(&http.address).await.unwrap();
    stream.write_all(begin).await.unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 1024]);
    let trickling = async {
        loop {
            let read = timeout(Duration::from_secs(1), stream.read(&mut some)).await;
            match read {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(bytes)) => said.extend_from_slice(&some[..bytes]),
                Err(_) if stream.write_all(byte).await.is_err() => return,
                Err(_) => {}
            }
        }
    };
    let over = timeout(within, trickling).await;
    let begin = String::from_utf8_lossy(begin);
    over.unwrap_or_else(|_| panic!("no end within {within:?} of {begin:?}"));
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn clients_that_take_their_time_are_cut_off_and_hold_up_no_other() {
    let (node, _dir) = single().await;
    let http = Http::of(&node);
    let head = b"GET /v1/leases HTTP/1.1\r\nHost: node\r\nX-Slow: ";
    let body = post("/v1/sessions", "Content-Length: 1000\r\n", "{");
    let served = b"GET /v1/leases HTTP/1.1\r\nHost: node\r\n\r\n";
    let half = b"PRI * HTTP/2.0\r\n\r\nSM\r\n";
    let soon = SLOW_MAX + Duration::from_secs(10);
    let slow = (0..100).map(|_| trickle(&http, head, b"x", soon));
    let answers = async {
        for _ in 0..20 {
            http.get("/v1/leases").await.ok();
            sleep(Duration::from_millis(500)).await;
        }
    };
    let (_, refused, _, _, ()) = tokio::join!(
        futures_util::future::join_all(slow),
        trickle(&http, &body, b" ", soon),
        trickle(&http, served, b"", soon),
        // What a connection may take to begin.
        trickle(&http, half, b"", SLOW_MAX),
        answers
    );
    parsed(&refused).problem(408, "INVALID_ARGUMENT");
}
