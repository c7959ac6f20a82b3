//! The layer in an HTTP server that people use, with requests as they come over the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Extension, Router};
use ringfence_guard::tower::{FenceLayer, Policy};
use ringfence_guard::{Fence, Guard, LeaseName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A service whose writes are guarded; it says under which fence it was reached.
async fn serve(guard: Arc<Guard>) -> SocketAddr {
    let write =
        |Extension(fence): Extension<Fence>| async move { format!("written under {fence}") };
    let routes = Router::new()
        .route("/balance", get(|| async { "100" }))
        .route("/deposit", post(write))
        .layer(FenceLayer::new(guard).route("/balance", Policy::Optional));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

/// The answer to one request, headers and all, in small letters.
async fn ask(address: SocketAddr, request: &str, headers: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const LEASE: &str = "Ringfence-Lease: bank/balance";

#[tokio::test]
async fn a_token_in_a_header_is_admitted_and_a_smaller_one_is_a_conflict() {
    let name = LeaseName::parse("bank/balance").unwrap();
    let guard = Arc::new(Guard::new(name));
    let address = serve(Arc::clone(&guard)).await;

    let nine = ask(address, "POST /deposit", &[LEASE, "Ringfence-Token: 9"]).await;
    assert!(nine.starts_with("HTTP/1.1 200 "), "{nine}");
    assert!(nine.ends_with("written under bank/balance#9"), "{nine}");
    assert_eq!(guard.mark().unwrap().get(), 9);

    let eight = ask(address, "POST /deposit", &[LEASE, "Ringfence-Token: 8"]).await;
    assert!(eight.starts_with("HTTP/1.1 409 "), "{eight}");
    assert!(
        eight.contains("ringfence-stale: bank/balance#8\r\n"),
        "{eight}"
    );
    assert!(
        eight.contains("content-type: application/json\r\n"),
        "{eight}"
    );
    assert!(eight.contains(r#""reason":"STALE_TOKEN""#), "{eight}");
    assert!(eight.contains(r#""current":"9""#), "{eight}");

    // The names of headers have no case, and HTTP/1 keeps what was written.
    let shouted = ["RINGFENCE-LEASE: bank/balance", "RINGFENCE-TOKEN: 10"];
    let ten = ask(address, "POST /deposit", &shouted).await;
    assert!(ten.ends_with("written under bank/balance#10"), "{ten}");
}

#[tokio::test]
async fn what_needs_no_fence_is_served_and_what_needs_one_says_so() {
    let name = LeaseName::parse("bank/balance").unwrap();
    let address = serve(Arc::new(Guard::new(name))).await;

    let read = ask(address, "GET /balance", &[]).await;
    assert!(read.starts_with("HTTP/1.1 200 "), "{read}");
    let bare = ask(address, "POST /deposit", &[]).await;
    assert!(bare.starts_with("HTTP/1.1 428 "), "{bare}");
    assert!(bare.contains("`ringfence-token`"), "{bare}");
    let twice = [LEASE, "Ringfence-Token: 9", "Ringfence-Token: 10"];
    let twice = ask(address, "POST /deposit", &twice).await;
    assert!(twice.starts_with("HTTP/1.1 400 "), "{twice}");
    assert!(twice.contains("came more than once"), "{twice}");
}
