//! Keep-alives of one connection that are many and answered: what waits for its turn has an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use ringfence_proto::v1::{Acknowledged, KeepAliveRequest, SessionHandle};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::IntoStreamingRequest;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::attackers::{connect, largest};
use crate::measure::Stage;
use crate::no_window::bomb;
use crate::raw::Raw;

/// What a node may take beside what it takes when it is quiet: the 32 MiB of the connection, its windows,
/// a buffer for each stream, messages that are being decoded to be refused, and what an allocator keeps.
/// While nothing bounded what waits it was three times as much within seconds.
const MORE_MAX: u64 = 200 << 20;
/// Streams whose keep-alives are answered one after the other.
const LINE: u64 = 8;
/// Sessions that each of them names: two of these are more than may be under way together.
const SESSIONS: u64 = 2_050;
/// Streams behind them that send one large message each.
const BOMBS: u64 = 40;
/// The most losses of one message.
const LOSSES: usize = 10_000;
/// Streams that carry one large message each and stay.
const LARGE: u64 = 300;
/// What these may take: without a limit it was the size of their messages, each of 1 MiB, and more.
const LARGE_MAX: u64 = 100 << 20;
/// Streams that acknowledge them, each with as many messages under way as a node reads.
const STREAMS: usize = 64;
const UNDER_WAY: usize = 64;

/// Asks again and again on a stream, with so many requests under way, and reads every answer.
pub(crate) async fn asks_on(
    channel: Channel,
    request: Bytes,
    under_way: usize,
    answered: Arc<AtomicU64>,
) {
    let places = Semaphore::new(under_way);
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let (ask, asked) = mpsc::channel(2);
    let path = PathAndQuery::from_static("/ringfence.v1.Sessions/KeepAlive");
    let answers = client
        .streaming(
            ReceiverStream::new(asked).into_streaming_request(),
            path,
            Raw,
        )
        .await;
    let mut answers = answers.unwrap().into_inner();
    let asking = async {
        // What is sent and not read by the node takes of the window that all streams have together.
        while let Ok(place) = places.acquire().await
            && ask.send(request.clone()).await.is_ok()
        {
            place.forget();
        }
    };
    let reading = async {
        while let Ok(Some(_)) = answers.message().await {
            answered.fetch_add(1, Ordering::Relaxed);
            places.add_permits(1);
        }
    };
    tokio::join!(asking, reading);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_for_the_turn_of_their_keep_alives_have_an_end() {
    let stage = Stage::set().await;
    let quiet = stage.memory();
    let channel = connect(&stage.cluster.endpoints()[stage.leader]).await;
    let answered = Arc::new(AtomicU64::new(0));
    let (line, bomb) = (largest(SESSIONS).encode_to_vec(), bomb().encode_to_vec());
    let (line, bomb) = (Bytes::from(line), Bytes::from(bomb));
    let mut attack = JoinSet::new();
    for _ in 0..LINE {
        attack.spawn(asks_on(channel.clone(), line.clone(), 1, answered.clone()));
    }
    while answered.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    let refused = Arc::new(AtomicU64::new(0));
    for _ in 0..BOMBS {
        attack.spawn(asks_on(channel.clone(), bomb.clone(), 1, refused.clone()));
    }
    stage
        .peaks_within(Duration::from_secs(12), quiet + MORE_MAX)
        .await;
    assert!(refused.load(Ordering::Relaxed) > 0, "none was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_that_are_acknowledged_have_an_end() {
    let stage = Stage::set().await;
    let quiet = stage.memory();
    let channel = connect(&stage.cluster.endpoints()[stage.leader]).await;
    let loss = Acknowledged {
        session: 1,
        token: 1,
    };
    let request = KeepAliveRequest {
        id: 1,
        sessions: Vec::new(),
        acknowledged: vec![loss; LOSSES],
    };
    let request = Bytes::from(request.encode_to_vec());
    let answered = Arc::new(AtomicU64::new(0));
    let mut attack = JoinSet::new();
    for _ in 0..STREAMS {
        attack.spawn(asks_on(
            channel.clone(),
            request.clone(),
            UNDER_WAY,
            answered.clone(),
        ));
    }
    stage
        .peaks_within(Duration::from_secs(12), quiet + MORE_MAX)
        .await;
    assert!(answered.load(Ordering::Relaxed) > 0, "none was answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_have_carried_a_large_message_are_few() {
    let stage = Stage::set().await;
    let quiet = stage.memory();
    let channel = connect(&stage.cluster.endpoints()[stage.leader]).await;
    // Large as it arrives, and nothing more when it has been decoded.
    let handle = SessionHandle {
        session: 1,
        secret: Bytes::from(vec![0; 1_000_000]),
    };
    let request = KeepAliveRequest {
        id: 1,
        sessions: vec![handle],
        acknowledged: Vec::new(),
    };
    let request = Bytes::from(request.encode_to_vec());
    let refused = Arc::new(AtomicU64::new(0));
    let mut attack = JoinSet::new();
    for _ in 0..LARGE {
        attack.spawn(asks_on(
            channel.clone(),
            request.clone(),
            1,
            refused.clone(),
        ));
        // One after the other: what counts is what stays.
        sleep(Duration::from_millis(20)).await;
    }
    stage
        .peaks_within(Duration::from_secs(12), quiet + LARGE_MAX)
        .await;
    assert!(refused.load(Ordering::Relaxed) > 0, "none was refused");
}
