//! Collectors that take nothing, or answer without an end: calls go on, and the node stops in time.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use super::bounds::{dropped, read};
use super::{exporting, traceparent};
use crate::api::Api;
use crate::process::PATIENCE;

/// How a collector behaves.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// It takes connections, reads everything and says nothing.
    Silent,
    /// It closes each connection.
    Closing,
    /// It says a byte of HTTP/2 a second.
    Dripping,
    /// It answers each call with messages without an end.
    Endless,
    /// It speaks another protocol, as fast as it can.
    Shouting,
}

/// What a node logs when failures begin, once for each signal.
const COMPLAINT: &str = "the collector takes nothing";

async fn start(way: Way) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    if let Way::Endless = way {
        let served = axum::Router::new().fallback(answer_without_end);
        let served = Server::builder().add_routes(Routes::from(served));
        tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
        return address;
    }
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(way, stream));
        }
    });
    address
}

/// Empty messages of gRPC, as fast as they are read.
async fn answer_without_end() -> http::Response<axum::body::Body> {
    let messages = Bytes::from(vec![0; 5 * 1_024]);
    let messages = tokio_stream::iter(std::iter::repeat(messages));
    let answer = axum::body::Body::from_stream(messages.map(Ok::<_, std::io::Error>));
    let answer = http::Response::builder()
        .header("content-type", "application/grpc")
        .body(answer);
    answer.unwrap()
}

async fn serve(way: Way, mut stream: TcpStream) -> Option<()> {
    let mut read = vec![0; 64 << 10];
    match way {
        Way::Silent => while stream.read(&mut read).await.ok()? > 0 {},
        Way::Closing => {}
        Way::Dripping => {
            // SETTINGS with one setting, byte by byte.
            for byte in [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100] {
                stream.write_all(&[byte]).await.ok()?;
                sleep(Duration::from_secs(1)).await;
            }
        }
        Way::Endless => unreachable!("it is served apart"),
        Way::Shouting => loop {
            stream.write_all(&read).await.ok()?;
        },
    }
    Some(())
}

async fn a_node_goes_on(way: Option<Way>) {
    let address = match way {
        Some(way) => start(way).await,
        // Where nothing listens.
        None => TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap(),
    };
    let flag = format!("--otlp-endpoint=http://{address}");
    let variables = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
    ];
    let (mut node, _dir) = exporting(&flag, &variables, &["--trace-sample=1"]).await;
    let before = node.resident();
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    for number in 1..=100 {
        let name = format!("db/{number}");
        let acquired = api.acquire(&alice, number, &name);
        let acquired = timeout(Duration::from_secs(2), acquired).await;
        acquired.expect("a call waits for no collector").unwrap();
    }
    let failed = async {
        loop {
            let (_, page) = node.http("/metrics").unwrap();
            let traces = "ringfence_otlp_failures_total{signal=\"traces\"} 0";
            let metrics = "ringfence_otlp_failures_total{signal=\"metrics\"} 0";
            let complained = node.logged().contains(COMPLAINT);
            if complained && !page.contains(traces) && !page.contains(metrics) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, failed).await.expect("both were tried");
    let grown = node.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{way:?}: {grown} bytes");
    let logged = node.logged();
    if let Some(Way::Endless) = way {
        assert!(logged.contains("length limit exceeded"), "{logged}");
    }
    let complaints = logged.matches(COMPLAINT).count();
    assert!((1..=2).contains(&complaints), "{way:?}: {logged}");
    node.signal("TERM");
    let ended = node.ended_within(Duration::from_secs(5)).await;
    assert!(
        ended.is_some_and(|ended| ended.success()),
        "{way:?}: {}",
        node.logged()
    );
}

#[tokio::test]
async fn a_collector_that_is_not_there_harms_no_node() {
    a_node_goes_on(None).await;
}

#[tokio::test]
async fn a_silent_collector_harms_no_node() {
    a_node_goes_on(Some(Way::Silent)).await;
}

#[tokio::test]
async fn a_collector_that_closes_harms_no_node() {
    a_node_goes_on(Some(Way::Closing)).await;
}

#[tokio::test]
async fn a_dripping_collector_harms_no_node() {
    a_node_goes_on(Some(Way::Dripping)).await;
}

#[tokio::test]
async fn an_endless_answer_harms_no_node() {
    a_node_goes_on(Some(Way::Endless)).await;
}

#[tokio::test]
async fn a_collector_of_another_protocol_harms_no_node() {
    a_node_goes_on(Some(Way::Shouting)).await;
}

#[tokio::test]
async fn what_has_no_room_in_the_queue_is_dropped_and_counted() {
    let address = start(Way::Silent).await;
    let flag = format!("--otlp-endpoint=http://{address}");
    let (node, _dir) = exporting(&flag, &[], &["--trace-sample=1"]).await;
    let full = async {
        while dropped(&node, "queue") == 0 {
            let (mut one, mut other) = (Api::of(&node).await, Api::of(&node).await);
            let (own, of_caller) = (String::new(), traceparent(true));
            tokio::join!(
                read(&mut one, 2_000, &own),
                read(&mut other, 2_000, &of_caller)
            );
        }
    };
    timeout(PATIENCE, full).await.expect("a limit");
}
