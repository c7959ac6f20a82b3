//! Connections that want something else, HTTP/2, and callers that take much.

use std::convert::Infallible;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
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
async fn callers_may_speak_http_2() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let call = |token| {
        let request = proxy.request("/deposit", Some(token));
        let request = request.header("cookie", "a=1").header("cookie", "b=2");
        client.request(request.body(Full::from("100")).unwrap())
    };
    for answer in [call(9).await, call(9).await] {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 201);
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "done /deposit");
    }
    let stale = call(8).await.unwrap();
    assert_eq!(stale.status(), 412);
    assert_eq!(stale.headers()["ringfence-stale"], "bank/x#8");
    let noted = service.noted.lock().unwrap();
    assert_eq!(noted.len(), 2);
    assert_eq!(noted[0].headers["host"], proxy.address.to_string());
    assert_eq!(noted[0].headers["cookie"], "a=1; b=2");
    assert_eq!(noted[0].body, "100");
}
