//! How a node ends.

use std::time::Duration;

use ringfence_proto::v1;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;

use crate::api::{Api, acquire_request};
use crate::process::single;
use crate::stream::Wire;

/// In which a node has ended, whatever its clients do.
const STOP_MAX: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_stopped_node_says_goodbye_to_open_streams_and_ends_in_time() {
    let (mut node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    api.acquire(&alice, 1, "db").await.unwrap();
    let mut wire = Wire::open(&mut api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };
    let waiting = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(&bob, 1, "db")
    };
    wire.ask([(1, Ask::Acquire(waiting))]);
    while api.get("db").await.unwrap().waiters == 0 {}
    let request = v1::WatchRequest::default();
    let mut watch = api.leases.watch(request).await.unwrap().into_inner();
    let mut keep_alive = api
        .sessions
        .keep_alive(tokio_stream::pending())
        .await
        .unwrap();

    node.signal("TERM");

    let (0, Body::GoingAway(_)) = wire.reply().await else {
        panic!("no goodbye")
    };
    assert!(wire.next().await.unwrap().is_none());
    let end = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().code(), tonic::Code::Unavailable);
    assert!(keep_alive.get_mut().message().await.unwrap().is_none());
    let status = node.ended_within(STOP_MAX).await.expect("it ends in time");
    assert!(status.success(), "{status}: {}", node.logged());
}

#[tokio::test]
async fn a_client_that_never_hangs_up_does_not_hold_a_node() {
    let (mut node, _dir) = single().await;
    let idle = std::net::TcpStream::connect(("127.0.0.1", node.ports.client)).unwrap();
    let idle_http = std::net::TcpStream::connect(("127.0.0.1", node.ports.http)).unwrap();

    node.signal("INT");

    let status = node.ended_within(STOP_MAX).await.expect("it ends in time");
    assert!(status.success(), "{status}: {}", node.logged());
    drop((idle, idle_http));
}
