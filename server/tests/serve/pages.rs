//! What a web page in the browser of an operator could send: it reaches no call, by gRPC or else.

use prost::Message;
use ringfence_proto::v1::AcquireRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::{Api, open_request};
use crate::process::{PATIENCE, single};

const GRPC: &str = "Content-Type: application/grpc\r\n";
const ORIGIN: &str = "Origin: http://evil.example\r\n";

/// Posts a message of gRPC as HTTP/1.1, and returns the answer with its trailers.
async fn post(port: u16, host: &str, path: &str, headers: &str, message: &[u8]) -> String {
    ask("POST", port, host, path, headers, message).await
}

async fn ask(
    method: &str,
    port: u16,
    host: &str,
    path: &str,
    headers: &str,
    message: &[u8],
) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let length = u32::try_from(message.len()).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nConnection: close\r\n{headers}\
         Content-Length: {}\r\n\r\n",
        message.len() + 5
    );
    let mut request = head.into_bytes();
    request.push(0);
    request.extend(length.to_be_bytes());
    request.extend(message);
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("an answer in time").unwrap();
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test]
async fn a_web_page_reaches_no_call_of_grpc() {
    let (node, _dir) = single().await;
    let port = node.ports.client;
    let acquire = |name: &str| AcquireRequest {
        open: Some(open_request("page")),
        number: 1,
        name: name.into(),
        ..AcquireRequest::default()
    };
    let page = acquire("page").encode_to_vec();
    let local = "127.0.0.1:7420";
    let path = "/ringfence.v1.Leases/Acquire";
    // What a browser sends for any page without asking first.
    for kind in [
        "",
        "Content-Type: text/plain;charset=UTF-8\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/octet-stream\r\n",
    ] {
        for from in ["", ORIGIN, "Sec-Fetch-Site: cross-site\r\n"] {
            let answer = post(port, local, path, &format!("{kind}{from}"), &page).await;
            let refused = if from.is_empty() { " 415 " } else { " 403 " };
            assert!(
                answer.starts_with(&format!("http/1.1{refused}")),
                "{answer}"
            );
        }
    }
    // What it sends for a page whose own name leads to the node.
    let rebound = "evil.example:7420";
    for (host, from) in [
        (local, ORIGIN),
        (local, "Sec-Fetch-Site: same-origin\r\n"),
        (rebound, "Origin: http://evil.example:7420\r\n"),
        (rebound, "Accept-Language: en\r\n"),
        (rebound, "Accept-Language: *\r\n"),
    ] {
        let answer = post(port, host, path, &format!("{GRPC}{from}"), &page).await;
        assert!(answer.contains("grpc-status: 3"), "{answer}");
    }
    for path in [
        "/ringfence.v1.Access/ChangeAccess",
        "/ringfence.v1.Cluster/Configure",
        "/ringfence.v1.Sessions/Evict",
        "/ringfence.v1.Connection/Stream",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Check",
    ] {
        let answer = post(port, local, path, "Content-Type: text/plain\r\n", b"").await;
        assert!(answer.starts_with("http/1.1 415 "), "{path}: {answer}");
        // A browser sends no `Origin` with a page's GET to its own name.
        for method in ["GET", "HEAD", "PUT"] {
            let answer = ask(method, port, local, path, GRPC, b"").await;
            assert!(answer.starts_with("http/1.1 405 "), "{path}: {answer}");
        }
    }
    let mut api = Api::of(&node).await;
    assert_eq!(api.status().await.last_token, 0, "nothing was granted");

    // A program of any language.
    let program = acquire("program").encode_to_vec();
    for kind in [GRPC, "Content-Type: application/grpc+proto\r\n"] {
        let answer = post(port, rebound, path, kind, &program).await;
        // HTTP/1.1 has no place for the status behind it here; the grant is the answer.
        assert!(answer.starts_with("http/1.1 200 "), "{answer}");
        assert!(answer.contains("program"), "{answer}");
    }
    assert_eq!(api.get("program").await.unwrap().holder.unwrap().token, 1);
}
