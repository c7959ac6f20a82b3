//! Bodies whose length is not said before, and answers that are more than one answer.

use std::convert::Infallible;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::stage::{LONG, Served, Service, head, options};

/// Sends these bytes, and has the first line of the answer.
async fn asked(proxy: &Served, request: &str) -> String {
    let mut connection = TcpStream::connect(proxy.address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = timeout(LONG / 3, connection.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_length_reaches_the_service_under_any_method() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let chunked = "transfer-encoding: chunked\r\n";
    for (token, method, body) in [
        (1, "GET", "5\r\nHELLO\r\n0\r\n\r\n"),
        (2, "HEAD", "5\r\nHELLO\r\n0\r\n\r\n"),
        (3, "DELETE", "5\r\nHELLO\r\n0\r\n\r\n"),
        (4, "GET", "0\r\n\r\n"),
        (5, "HEAD", "0\r\n\r\n"),
    ] {
        let request = format!("{}{body}", head(method, "/search", token, chunked));
        assert_eq!(asked(&proxy, &request).await, "HTTP/1.1 201", "{method}");
        let noted = service.noted.lock().unwrap().pop().unwrap();
        let expected = if body.len() > 5 { "HELLO" } else { "" };
        assert_eq!(noted.body, expected, "{method}");
    }
    // All were over.
    let newer = timeout(LONG / 3, proxy.post("/newer", Some(6))).await;
    assert_eq!(newer.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_length_reaches_the_service_from_http_2() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let parts = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
    let parts = parts.map(|part| Ok::<_, Infallible>(Frame::data(part)));
    let request = proxy.request("/search", Some(8)).method("GET");
    let request = request.body(StreamBody::new(tokio_stream::iter(parts)));
    let answer = client.request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.into_body().collect().await.unwrap();
    assert_eq!(service.noted.lock().unwrap()[0].body, "one two");
    let newer = timeout(LONG / 3, proxy.post("/newer", Some(9))).await;
    assert_eq!(newer.unwrap().status, 201);
}

/// A service that has more bytes for each answer than belong to it: at once behind one of `/at-once`, else a
/// moment later.
async fn talkative() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = connection.read(&mut bytes).await {
                    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let poison = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
                    let (answer, later) = match text.split(' ').nth(1).unwrap_or_default() {
                        "/head" => ("HTTP/1.1 200 OK\r\ncontent-length: 51\r\n\r\n", poison),
                        "/204" => ("HTTP/1.1 204 No Content\r\n\r\n", poison),
                        "/304" => ("HTTP/1.1 304 Not Modified\r\n\r\n", poison),
                        _ => ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nreal", ""),
                    };
                    let at_once = if text.contains("/at-once") {
                        poison
                    } else {
                        ""
                    };
                    let answer = format!("{answer}{at_once}");
                    connection.write_all(answer.as_bytes()).await.unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    connection.write_all(later.as_bytes()).await.ok();
                }
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_gets_what_a_service_has_sent_behind_another_answer() {
    let proxy = Served::start(options(&talkative().await)).await;
    for (method, path) in [
        ("HEAD", "/head"),
        ("POST", "/204"),
        ("POST", "/304"),
        ("POST", "/at-once"),
    ] {
        for _ in 0..5 {
            let first = proxy.request(path, Some(8)).method(method);
            proxy.send(first, http_body_util::Full::default()).await;
            let next = proxy.post("/next", Some(8)).await;
            assert_eq!(next.body.as_deref(), Some("real"), "behind {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_says_without_end_that_it_will_answer_is_severed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                let count = connection.read(&mut bytes).await.unwrap();
                let hints = match bytes[..count].starts_with(b"POST /few") {
                    true => 16,
                    false => usize::MAX,
                };
                let hint = format!(
                    "HTTP/1.1 103 Early Hints\r\nx: {}\r\n\r\n",
                    "a".repeat(60_000)
                );
                for _ in 0..hints {
                    if connection.write_all(hint.as_bytes()).await.is_err() {
                        return;
                    }
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                connection.write_all(answer).await.unwrap();
            });
        }
    });
    let proxy = Served::start(options(&format!("http://{address}"))).await;
    assert_eq!(proxy.post("/few", Some(8)).await.status, 200);
    let answer = timeout(LONG / 3, proxy.post("/many", Some(8)))
        .await
        .unwrap();
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.problem(),
        ("OUTCOME_UNKNOWN".into(), "unknown".into())
    );
}
