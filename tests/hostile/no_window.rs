//! Connections that open no window: what they ask for is made, and nothing of it can be sent.

use std::future::pending;
use std::time::Duration;

use ringfence_proto::v1::client_frame::Body;
use ringfence_proto::v1::connection_client::ConnectionClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    ClientFrame, ClientMessage, GetSessionRequest, KeepAliveRequest, ListRequest,
    ListSessionsRequest, SessionHandle,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::attackers::connect;
use crate::many_leases::{PER_SESSION, fill};
use crate::measure::{PATIENCE, Stage, memory};

/// How many calls one connection makes.
const CALLS: usize = 400;
/// How many streams send a large message.
const STREAMS: u32 = 16;
/// Between two of them, so that the attackers' own work leaves some of the machine to others.
const BETWEEN: Duration = Duration::from_millis(300);
/// How many sessions there are with as many leases as they may hold.
const SESSIONS: u64 = 2;
/// Bytes of a lease's name.
const WIDTH: usize = 240;
/// What a node may take, in bytes: what it takes when it is quiet, and the 32 MiB of one connection.
const MEMORY_MAX: u64 = 400 << 20;
/// The same with large messages that wait: twenty times their size would be more.
const WAITING_MAX: u64 = 300 << 20;
/// What fills a message of 1 MiB: handles of 2 bytes on the wire.
const EMPTY_HANDLES: usize = (1 << 19) - 16;

async fn without_window(endpoint: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(0);
    let connecting = timeout(PATIENCE, endpoint.connect());
    connecting.await.unwrap().unwrap()
}

/// A stage with leases whose page is large.
async fn filled() -> (Stage, String) {
    let stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    for session in 0..SESSIONS {
        let (caller, channel) = (stage.cluster.caller(), connect(&endpoint).await);
        fill(caller, channel, session * PER_SESSION, WIDTH).await;
    }
    (stage, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_reads_have_an_end() {
    let (mut stage, endpoint) = filled().await;
    let channel = without_window(&endpoint).await;
    let mut attack = JoinSet::new();
    for _ in 0..CALLS {
        let mut leases = LeasesClient::new(channel.clone());
        attack.spawn(async move {
            let all = ListRequest {
                page_size: 10_000,
                ..ListRequest::default()
            };
            leases.list(all).await.ok();
        });
    }
    stage.holds_within(Duration::from_secs(8), MEMORY_MAX).await;
    // Others are served meanwhile.
    let mut leases = LeasesClient::new(connect(&endpoint).await);
    let page = timeout(PATIENCE, leases.list(ListRequest::default())).await;
    let page = page.expect("a page in time").unwrap().into_inner();
    assert!(!page.leases.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_nobody_reads_have_an_end() {
    let (mut stage, endpoint) = filled().await;
    let mut sessions = SessionsClient::new(connect(&endpoint).await);
    let all = sessions.list(ListSessionsRequest::default()).await.unwrap();
    let all = all.into_inner().sessions;
    let largest = all.iter().max_by_key(|session| session.leases.len());
    let largest = largest.unwrap().session;
    let channel = without_window(&endpoint).await;
    let mut attack = JoinSet::new();
    for at in 0..2 * CALLS {
        let mut sessions = SessionsClient::new(channel.clone());
        attack.spawn(async move {
            if at % 2 == 0 {
                sessions.list(ListSessionsRequest::default()).await.ok();
            } else {
                let one = GetSessionRequest {
                    session: largest,
                    ..GetSessionRequest::default()
                };
                sessions.get(one).await.ok();
            }
        });
    }
    stage.holds_within(Duration::from_secs(8), MEMORY_MAX).await;
}

/// A keep-alive that takes twenty times its size of a node's memory.
pub(crate) fn bomb() -> KeepAliveRequest {
    KeepAliveRequest {
        sessions: vec![SessionHandle::default(); EMPTY_HANDLES],
        ..KeepAliveRequest::default()
    }
}

/// Waits until all streams have sent all, and looks at the leader. What is measured is memory alone: in
/// a build without optimization these messages take the attackers and the node seconds to code.
async fn takes_at_most(stage: &Stage, max: u64) {
    sleep(BETWEEN * (STREAMS + 10)).await;
    let bytes = memory(stage.cluster.pid(stage.leader).unwrap());
    println!("memory: {} MiB", bytes >> 20);
    assert!(bytes <= max, "the node has {} MiB", bytes >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alives_that_wait_for_a_place_have_an_end() {
    let stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let channel = without_window(&endpoint).await;
    let mut attack = JoinSet::new();
    for at in 0..STREAMS {
        let mut sessions = SessionsClient::new(channel.clone());
        attack.spawn(async move {
            sleep(BETWEEN * at).await;
            let (ask, asked) = mpsc::channel(100);
            let _unread = sessions.keep_alive(ReceiverStream::new(asked)).await;
            // The first reply goes into the one piece that is made without a window.
            ask.send(KeepAliveRequest::default()).await.unwrap();
            sleep(BETWEEN).await;
            for _ in 0..64 {
                ask.send(KeepAliveRequest::default()).await.unwrap();
            }
            ask.send(bomb()).await.unwrap();
            pending::<()>().await;
        });
    }
    takes_at_most(&stage, WAITING_MAX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_wait_for_a_place_have_an_end() {
    let stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let channel = without_window(&endpoint).await;
    let message = |frames| ClientMessage { frames };
    let mut attack = JoinSet::new();
    for at in 0..STREAMS {
        let mut connection = ConnectionClient::new(channel.clone());
        attack.spawn(async move {
            sleep(BETWEEN * at).await;
            let (ask, asked) = mpsc::channel(100);
            let _unread = connection.stream(ReceiverStream::new(asked)).await;
            // The greeting goes into the one piece that is made without a window. What asks for nothing
            // is refused by a reply: these take all places.
            sleep(BETWEEN).await;
            let nothing = |id| ClientFrame {
                id,
                ..ClientFrame::default()
            };
            let frames = (1..=4_096).map(nothing).collect();
            ask.send(message(frames)).await.unwrap();
            let body = Some(Body::KeepAlive(bomb()));
            let bomb = ClientFrame {
                id: 1,
                body,
                ..ClientFrame::default()
            };
            ask.send(message(vec![bomb])).await.unwrap();
            pending::<()>().await;
        });
    }
    takes_at_most(&stage, WAITING_MAX).await;
}
