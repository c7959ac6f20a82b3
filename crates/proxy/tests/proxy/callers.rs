//! Callers that take much: connections that say nothing, and requests whose caller has gone.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage::{LONG, Served, Service, head, options};

/// More connections than there is room for, each of which has said this.
async fn crowd(proxy: &Served, said: &[u8]) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let mut connection = TcpStream::connect(proxy.address).await.unwrap();
        connection.write_all(said).await.unwrap();
        crowd.push(connection);
    }
    crowd
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_whole_head_shut_none_out_for_long() {
    let (_service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.limits.head_within = Duration::from_millis(300);
    options.limits.idle = Duration::from_millis(300);
    options.limits.connections = 2;
    let proxy = Served::start(options).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [&preface[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    for said in [
        &b""[..],
        b"P",
        b"PRI * HTTP/2.0\r\n\r\n",
        preface,
        &settings,
        b"POST /a HTTP/1.1\r\nhost: a\r\n",
        b"POST /open/a HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    ] {
        let _crowd = crowd(&proxy, said).await;
        let answer = timeout(LONG / 3, proxy.post("/a", Some(8))).await;
        let answer = answer.unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(said)));
        assert_eq!(answer.status, 201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_head_is_refused() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.limits.head_bytes = 16 << 10;
    let proxy = Served::start(options).await;
    let large = proxy
        .request("/a", Some(8))
        .header("x-large", "x".repeat(32 << 10));
    assert_eq!(proxy.send(large, Full::default()).await.status, 431);
    assert!(service.paths().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_whose_caller_has_gone_count() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.limits.requests = 3;
    let proxy = Served::start(options).await;
    for count in 1..=3 {
        let mut gone = TcpStream::connect(proxy.address).await.unwrap();
        let request = head("POST", "/slow", 8, "content-length: 0\r\n");
        gone.write_all(request.as_bytes()).await.unwrap();
        service.has(count).await;
    }
    let answer = proxy.post("/a", Some(8)).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(
        answer.problem(),
        ("TOO_MANY_REQUESTS".into(), "not_done".into())
    );
    assert_eq!(proxy.post("/open/a", None).await.status, 503);
    service.gate.add_permits(3);
    let free = async {
        while proxy.post("/a", Some(8)).await.status != 201 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, free).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_requests_whose_caller_has_gone_and_not_for_ever() {
    for is_answered in [true, false] {
        let (service, upstream) = Service::start().await;
        let mut options = options(&upstream);
        options.drain = Duration::from_millis(1_500);
        let proxy = Served::start(options).await;
        let mut gone = TcpStream::connect(proxy.address).await.unwrap();
        let request = head("POST", "/slow", 8, "content-length: 0\r\n");
        gone.write_all(request.as_bytes()).await.unwrap();
        service.has(1).await;
        drop(gone);
        // One that is idle does not keep it.
        let _idle = TcpStream::connect(proxy.address).await.unwrap();
        let gate = Arc::clone(&service.gate);
        let mut stopped = Box::pin(proxy.stop());
        let early = timeout(Duration::from_millis(400), &mut stopped).await;
        assert!(early.is_err(), "it has not waited");
        if is_answered {
            gate.add_permits(1);
        }
        assert_eq!(timeout(LONG, stopped).await.unwrap(), is_answered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_be_read_in_two_ways_does_not_reach_the_service() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.safe_methods = true;
    let proxy = Served::start(options).await;
    let fence = "ringfence-lease: bank/x\r\nringfence-token: 8\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    let cases = [
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}content-length: 4\r\ncontent-length: 5\r\n\r\nabcde{smuggled}"
        ),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
        ),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!("POST /a HTTP/1.1\r\nhost: a\r\nhost: b\r\n{fence}content-length: 0\r\n\r\n"),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\nconnection: ringfence-token\r\n{fence}content-length: 0\r\n\r\n"
        ),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}ringfence-token: 9\r\ncontent-length: 0\r\n\r\n"
        ),
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\n{fence}x-original-url: /b\r\ncontent-length: 0\r\n\r\n"
        ),
        "GET /a?_method=DELETE HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET /a HTTP/1.1\r\nhost: a\r\ncontent-length: 14\r\n\r\n_method=DELETE".to_owned(),
    ];
    for case in cases {
        let mut connection = TcpStream::connect(proxy.address).await.unwrap();
        connection.write_all(case.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(LONG, connection.read_exact(&mut answer))
            .await
            .unwrap()
            .unwrap();
        let status = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            ["HTTP/1.1 400", "HTTP/1.1 428"].contains(&status.as_str()),
            "{status}: {case}"
        );
    }
    assert!(service.paths().is_empty(), "{:?}", service.paths());
}

/// With both a length and chunks it is chunks that count, and nothing is read behind them (RFC 9112, section
/// 6.3). The service gets one of the two.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_body_with_two_lengths_no_request_is_read() {
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 60\r\ntransfer-encoding: chunked\r\n",
    ] {
        let (service, upstream) = Service::start().await;
        let proxy = Served::start(options(&upstream)).await;
        let smuggled = head("POST", "/smuggled", 8, "content-length: 0\r\n");
        let request = format!("{}0\r\n\r\n{smuggled}", head("POST", "/a", 8, lengths));
        let mut connection = TcpStream::connect(proxy.address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        timeout(LONG, connection.read_to_end(&mut answers))
            .await
            .unwrap()
            .ok();
        let answers = String::from_utf8_lossy(&answers).into_owned();
        assert_eq!(
            answers.matches("HTTP/1.1").count(),
            1,
            "{lengths}: {answers}"
        );
        assert!(!service.paths().contains(&"/smuggled".into()), "{lengths}");
        for noted in service.noted.lock().unwrap().iter() {
            let both = ["content-length", "transfer-encoding"];
            let count = both
                .iter()
                .filter(|name| noted.headers.contains_key(**name))
                .count();
            assert!(count < 2 && noted.body.is_empty(), "{noted:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_give_way_to_another_one() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.limits.connections = 3;
    let proxy = Served::start(options).await;
    let mut busy = TcpStream::connect(proxy.address).await.unwrap();
    let request = head("POST", "/slow", 8, "content-length: 0\r\n");
    busy.write_all(request.as_bytes()).await.unwrap();
    service.has(1).await;
    for said in [&b""[..], b"POST /a HTTP/1.1\r\n"] {
        let _crowd = [crowd(&proxy, said).await, crowd(&proxy, said).await];
        let answer = timeout(Duration::from_secs(5), proxy.post("/a", Some(8))).await;
        assert_eq!(answer.unwrap().status, 201);
    }
    // The one with a request has kept its place.
    service.gate.add_permits(1);
    let mut answer = [0; 12];
    timeout(LONG, busy.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
}
