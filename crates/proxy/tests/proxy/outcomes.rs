//! What a caller learns when the service gives no answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::stage::{Served, Service, options};

fn both(reason: &str, outcome: &str) -> (String, String) {
    (reason.to_owned(), outcome.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_not_there_has_done_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let proxy = Served::start(options(&format!("http://{closed}"))).await;
    let answer = proxy.post("/a", Some(8)).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.problem(), both("SERVICE_UNAVAILABLE", "not_done"));
    // Nothing is inside any more.
    assert_eq!(proxy.post("/a", Some(9)).await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_breaks_off_or_is_late_may_have_done_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            drop(connection.read(&mut bytes).await);
        }
    });
    let proxy = Served::start(options(&format!("http://{address}"))).await;
    let answer = proxy.post("/a", Some(8)).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.problem(), both("OUTCOME_UNKNOWN", "unknown"));

    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.request_max = Duration::from_millis(300);
    let proxy = Served::start(options).await;
    let answer = proxy.post("/slow", Some(8)).await;
    assert_eq!(answer.status, 504);
    assert_eq!(answer.problem(), both("OUTCOME_UNKNOWN", "unknown"));
    assert_eq!(service.paths().len(), 1);
    assert_eq!(proxy.post("/a", Some(9)).await.status, 201);
}

/// Its head has come, and its body does not end: it is inside until its time is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_end_breaks_off_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            let count = connection.read(&mut bytes).await.unwrap();
            let is_slow = bytes[..count].starts_with(b"POST /slow");
            let length = if is_slow { 10 } else { 4 };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nhalf");
            connection.write_all(head.as_bytes()).await.unwrap();
            open.push(connection);
            begins.add_permits(1);
        }
    });
    let mut options = options(&format!("http://{address}"));
    options.request_max = Duration::from_secs(2);
    let proxy = Served::start(options).await;
    let (slow, newer) = tokio::join!(proxy.post("/slow", Some(8)), async {
        drop(begun.acquire().await.unwrap());
        let mut newer = pin!(proxy.post("/a", Some(9)));
        let early = timeout(Duration::from_millis(150), &mut newer).await;
        assert!(early.is_err(), "it does not wait");
        newer.await.status
    });
    assert_eq!((slow.status, slow.body), (200, None));
    assert_eq!(newer, 200);
}
