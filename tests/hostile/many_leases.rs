//! Readers of everything, in a cluster with many leases.

use std::time::Duration;

use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::connection_client::ConnectionClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    AcquireRequest, ClientFrame, ClientMessage, ListRequest, ListSessionsRequest, WatchRequest,
};
use ringfence_tests::Caller;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::attackers::connect;
use crate::measure::{PATIENCE, Stage};

/// How many leases there are, unless [`VARIABLE`] says another number.
const LEASES: u64 = 100_000;
/// The nightly run sets it to 800,000.
const VARIABLE: &str = "RINGFENCE_HOSTILE_LEASES";
/// What a session may hold.
pub(crate) const PER_SESSION: u64 = 4_000;
/// How many acquires are under way together.
const TOGETHER: u64 = 200;

fn leases() -> u64 {
    std::env::var(VARIABLE).map_or(LEASES, |number| number.parse().unwrap())
}

/// A session takes leases `first` and those behind it, with names of at least so many bytes.
pub(crate) async fn fill(caller: Caller, channel: Channel, first: u64, width: usize) {
    let session = caller
        .open("holder", Duration::from_secs(300))
        .await
        .unwrap();
    let (ask, asked) = mpsc::channel(4);
    let mut client = ConnectionClient::new(channel);
    let mut replies = client
        .stream(ReceiverStream::new(asked))
        .await
        .unwrap()
        .into_inner();
    for begin in (0..PER_SESSION).step_by(TOGETHER as usize) {
        let frames = (begin..begin + TOGETHER).map(|at| ClientFrame {
            id: at + 1,
            body: Some(Ask::Acquire(AcquireRequest {
                session: Some(session.handle.clone()),
                number: at + 1,
                lowest: begin + 1,
                name: format!("many/{:0>width$}", first + at),
                ..AcquireRequest::default()
            })),
            ..ClientFrame::default()
        });
        ask.send(ClientMessage {
            frames: frames.collect(),
        })
        .await
        .unwrap();
        let mut missing = TOGETHER;
        while missing > 0 {
            let message = timeout(PATIENCE, replies.message())
                .await
                .expect("replies in time");
            for frame in message.unwrap().unwrap().frames {
                match frame.body {
                    Some(Body::Acquire(_)) => missing -= 1,
                    Some(Body::Greeting(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

async fn lists(channel: Channel) {
    let mut leases = LeasesClient::new(channel);
    loop {
        let first = ListRequest {
            page_size: 1,
            ..ListRequest::default()
        };
        leases.list(first).await.unwrap();
    }
}

async fn sessions(channel: Channel) {
    let mut sessions = SessionsClient::new(channel);
    loop {
        sessions.list(ListSessionsRequest::default()).await.unwrap();
    }
}

/// Reads the present state of everything to its end, again and again.
async fn watches(channel: Channel) {
    let mut leases = LeasesClient::new(channel);
    loop {
        let mut watch = leases
            .watch(WatchRequest::default())
            .await
            .unwrap()
            .into_inner();
        let mut told = 0;
        while let Some(message) = watch.message().await.unwrap() {
            told += message.events.len() as u64;
            if message.position.is_some() {
                break;
            }
        }
        assert!(told >= self::leases(), "{told} leases were told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_everything_hold_up_no_keep_alive() {
    let mut stage = Stage::set().await;
    let endpoint = stage.cluster.endpoints()[stage.leader].clone();
    let mut filling = JoinSet::new();
    for first in (0..leases()).step_by(PER_SESSION as usize) {
        if filling.len() >= 4 {
            filling.join_next().await.unwrap().unwrap();
        }
        filling.spawn(fill(
            stage.cluster.caller(),
            connect(&endpoint).await,
            first,
            0,
        ));
    }
    while let Some(filled) = filling.join_next().await {
        filled.unwrap();
    }

    let mut attack = JoinSet::new();
    for _ in 0..4 {
        attack.spawn(lists(connect(&endpoint).await));
    }
    attack.spawn(sessions(connect(&endpoint).await));
    attack.spawn(watches(connect(&endpoint).await));
    // About 1 KiB for a lease, its session's part and what is reported of it.
    let memory_max = (1 << 30) + leases() * 2_048;
    stage
        .holds_within(Duration::from_secs(10), memory_max)
        .await;
    assert_eq!(attack.len(), 6);
    assert!(attack.try_join_next().is_none(), "a reader was refused");
}
