//! Connections that want something else, HTTP/2, and callers that take much.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ringfence_proxy::Upstream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::stage::{LONG, Served, Service, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_becomes_none_of_another_protocol() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let upgrade = |to: &str| {
        let request = proxy.request("/open/a", Some(8));
        request
            .header("connection", "upgrade")
            .header("upgrade", to)
    };
    for to in ["websocket", "h2c, websocket", "TLS/1.2"] {
        let answer = proxy.send(upgrade(to), Full::default()).await;
        assert_eq!(answer.status, 501, "{to}");
        assert_eq!(answer.problem().0, "UPGRADE_REFUSED");
    }
    assert!(service.paths().is_empty());
    // HTTP/2 is asked for, and the question is left aside.
    assert_eq!(
        proxy.send(upgrade("h2c"), Full::default()).await.status,
        201
    );
    let noted = service.noted.lock().unwrap()[0].clone();
    assert!(!noted.headers.contains_key("upgrade"), "{noted:?}");

    let mut tunnel = TcpStream::connect(proxy.address).await.unwrap();
    tunnel
        .write_all(b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 64];
    let count = tunnel.read(&mut answer).await.unwrap();
    assert!(
        answer[..count].starts_with(b"HTTP/1.1 501"),
        "{:?}",
        &answer[..count]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_passes_with_its_trailers_and_is_refused_in_its_own_words() {
    // Answers each call with a message and trailers, as gRPC has them.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |request: axum::extract::Request| async move {
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.headers()["te"], "trailers");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let body = Full::new(body).with_trailers(std::future::ready(Some(Ok(trailers))));
        http::Response::new(axum::body::Body::new(body))
    };
    let service =
        hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
            Ok::<_, Infallible>(answer(request.map(axum::body::Body::new)).await)
        });
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let io = hyper_util::rt::TokioIo::new(connection);
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(io, service));
        }
    });
    let mut options = options("http://127.0.0.1:1");
    options.upstream = Upstream::parse(&format!("http://{address}"))
        .unwrap()
        .http2(true);
    let proxy = Served::start(options).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let call = |token| {
        let request = proxy.request("/bank.Ledger/Write", Some(token));
        let request = request
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        client.request(request.body(Full::from("message")).unwrap())
    };
    let answer = call(9).await.unwrap();
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "message");
    let stale = call(8).await.unwrap();
    assert_eq!(
        (stale.status().as_u16(), &stale.headers()["grpc-status"]),
        (200, &"9".parse().unwrap())
    );
    assert_eq!(stale.headers()["ringfence-stale"], "bank/x#8");
}

/// A body is passed on as it comes, and is never held as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_streamed_both_ways() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo =
        |request: axum::extract::Request| async move { http::Response::new(request.into_body()) };
    let routes = axum::Router::new().fallback(echo);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let proxy = Served::start(options(&format!("http://{address}"))).await;

    let (parts, coming) = tokio::sync::mpsc::channel::<Bytes>(1);
    let coming = ReceiverStream::new(coming);
    let coming = coming.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = proxy
        .request("/echo", Some(8))
        .body(StreamBody::new(coming))
        .unwrap();
    let asked = tokio::spawn(client.request(request));
    parts.send(Bytes::from_static(b"first")).await.unwrap();
    let mut answer = timeout(LONG, asked)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .into_body();
    let first = timeout(LONG, answer.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    parts.send(Bytes::from_static(b"second")).await.unwrap();
    let second = timeout(LONG, answer.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(second.into_data().unwrap(), "second");
    drop(parts);
    assert!(timeout(LONG, answer.frame()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_takes_its_time_or_shows_much_is_let_go() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.limits.head_within = Duration::from_millis(300);
    options.limits.head_bytes = 16 << 10;
    options.limits.connections = 2;
    let proxy = Served::start(options).await;
    // More than there is room for, and none of them ends its head.
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut connection = TcpStream::connect(proxy.address).await.unwrap();
        connection
            .write_all(b"POST /a HTTP/1.1\r\nhost: a\r\n")
            .await
            .unwrap();
        slow.push(connection);
    }
    assert_eq!(
        timeout(LONG, proxy.post("/a", Some(8)))
            .await
            .unwrap()
            .status,
        201
    );
    let large = proxy
        .request("/a", Some(8))
        .header("x-large", "x".repeat(32 << 10));
    assert_eq!(proxy.send(large, Full::default()).await.status, 431);
    assert_eq!(service.paths(), ["/a"]);
}
