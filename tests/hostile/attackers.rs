//! Connections that read nothing, and those that open streams and leave.

use std::time::Duration;

use ringfence_proto::v1::client_frame::Body;
use ringfence_proto::v1::connection_client::ConnectionClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{ClientFrame, ClientMessage, KeepAliveRequest, SessionHandle};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::measure::{PATIENCE, Stage};

/// The most sessions of one message.
const SESSIONS: u64 = 10_000;
/// How long each attack lasts.
const ATTACK: Duration = Duration::from_secs(8);

pub(crate) async fn connect(endpoint: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).unwrap();
    timeout(PATIENCE, endpoint.connect())
        .await
        .unwrap()
        .unwrap()
}

/// The keep-alive whose answer is largest for its size: of sessions that there are not.
pub(crate) fn largest(sessions: u64) -> KeepAliveRequest {
    let handle = |n| SessionHandle {
        session: 1 << 40 | n,
        secret: vec![1; 16].into(),
    };
    KeepAliveRequest {
        id: 1,
        sessions: (0..sessions).map(handle).collect(),
        acknowledged: Vec::new(),
    }
}

/// Sends keep-alives on `Sessions.KeepAlive` for as long as they are taken, and reads nothing.
async fn unread_keep_alives(endpoint: String, sessions: u64) {
    let mut client = SessionsClient::new(connect(&endpoint).await);
    let (ask, asked) = mpsc::channel(1);
    let _unread = client.keep_alive(ReceiverStream::new(asked)).await.unwrap();
    let request = largest(sessions);
    while ask.send(request.clone()).await.is_ok() {}
    std::future::pending::<()>().await;
}

/// The same on `Connection.Stream`.
async fn unread_frames(endpoint: String, sessions: u64) {
    let mut client = ConnectionClient::new(connect(&endpoint).await);
    let (ask, asked) = mpsc::channel(1);
    let _unread = client.stream(ReceiverStream::new(asked)).await.unwrap();
    let frame = ClientFrame {
        id: 1,
        body: Some(Body::KeepAlive(largest(sessions))),
        ..ClientFrame::default()
    };
    let message = ClientMessage {
        frames: vec![frame],
    };
    while ask.send(message.clone()).await.is_ok() {}
    std::future::pending::<()>().await;
}

/// Opens streams, says a word on each, and leaves; again and again.
async fn streams_and_leave(endpoint: String) {
    loop {
        let mut client = ConnectionClient::new(connect(&endpoint).await);
        let mut streams = Vec::new();
        for _ in 0..100 {
            let (ask, asked) = mpsc::channel(1);
            ask.send(ClientMessage::default()).await.unwrap();
            // A node may refuse it, which is as good.
            streams.extend(
                client
                    .stream(ReceiverStream::new(asked))
                    .await
                    .map(|stream| (stream, ask))
                    .ok(),
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_keep_alives_of_one_connection_have_an_end() {
    let mut stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let mut attack = JoinSet::new();
    attack.spawn(unread_keep_alives(endpoint, SESSIONS));
    stage.holds_within(ATTACK, 400 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_frames_of_one_connection_have_an_end() {
    let mut stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let mut attack = JoinSet::new();
    attack.spawn(unread_frames(endpoint, SESSIONS));
    stage.holds_within(ATTACK, 400 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_connections_that_read_nothing_have_an_end() {
    let mut stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let mut attack = JoinSet::new();
    for _ in 0..50 {
        attack.spawn(unread_keep_alives(endpoint.clone(), 500));
        attack.spawn(unread_frames(endpoint.clone(), 500));
    }
    stage.holds_for(ATTACK).await;
    drop(attack);
    stage.holds_for(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_opened_and_left_cost_nothing() {
    let mut stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let mut attack = JoinSet::new();
    for _ in 0..4 {
        attack.spawn(streams_and_leave(endpoint.clone()));
    }
    stage.holds_for(Duration::from_secs(5)).await;
}
