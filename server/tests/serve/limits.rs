//! What a client can make a node keep in memory: all of it has an end.

use std::sync::LazyLock;
use std::time::Duration;

use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::v1::watch_event::Kind;
use ringfence_proto::v1::{self, Reason};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};
use tonic::{Code, Streaming};

use crate::api::{Api, acquire_request, refusal};
use crate::process::{PATIENCE, Process, single};
use crate::stream::Wire;

/// How often what cannot be awaited is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// The most watches of a node, as the protocol says.
const WATCHERS_MAX: usize = 10_000;
/// The events that a node keeps for watches that lag, as the protocol says.
const EVENTS_KEPT: usize = 65_536;
/// What one session may hold.
const LEASES_MAX: u64 = 4_096;
const MIB: u64 = 1 << 20;

/// One at a time: each of them keeps both cores busy, and looks at memory.
async fn alone() -> MutexGuard<'static, ()> {
    static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
    TURN.lock().await
}

async fn watch(api: &mut Api, prefix: &str) -> Result<Streaming<v1::WatchResponse>, tonic::Status> {
    let request = v1::WatchRequest {
        prefix: prefix.to_owned(),
        from: None,
    };
    Ok(api.leases.watch(request).await?.into_inner())
}

async fn next(stream: &mut Streaming<v1::WatchResponse>) -> v1::WatchResponse {
    let message = timeout(PATIENCE, stream.message()).await;
    message.expect("a message in time").unwrap().unwrap()
}

/// So many watches on a connection of their own. No client reads them, and after a few messages
/// they have no room for more, so that they keep no processor busy.
async fn unread_watches(node: &Process, count: usize) -> Vec<Streaming<v1::WatchResponse>> {
    let endpoint = tonic::transport::Endpoint::from_shared(node.url()).unwrap();
    let endpoint = endpoint.initial_stream_window_size(100);
    let mut leases = LeasesClient::new(endpoint.connect().await.unwrap());
    let mut open = Vec::new();
    for _ in 0..count {
        let request = v1::WatchRequest::default();
        open.push(leases.watch(request).await.unwrap().into_inner());
    }
    open
}

/// The sum of a figure over its labels, as `/metrics` shows it.
fn figure(node: &Process, name: &str) -> u64 {
    let (_, text) = node.http("/metrics").unwrap();
    let values = text.lines().filter(|line| line.starts_with(name));
    let values = values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.sum()
}

/// Makes `LEASES_MAX` grants and as many ends.
async fn churn(api: &mut Api, wire: &mut Wire, data: usize) {
    let session = api.open(&"x".repeat(200)).await;
    for first in (0..LEASES_MAX).step_by(256) {
        wire.ask((first..first + 256).map(|at| {
            let acquire = v1::AcquireRequest {
                lowest: first + 1,
                data: vec![b'd'; data].into(),
                ..acquire_request(&session, at + 1, &format!("churn/{at}"))
            };
            (at + 1, Ask::Acquire(acquire))
        }));
        for _ in 0..256 {
            let (_, body) = wire.reply().await;
            assert!(matches!(body, Body::Acquire(_)), "{body:?}");
        }
    }
    let close = v1::CloseRequest {
        session: Some(session),
    };
    wire.ask([(1, Ask::Close(close))]);
    let (1, Body::Close(_)) = wire.reply().await else {
        panic!("not closed")
    };
}

/// An open stream behind its greeting.
async fn wire(api: &mut Api) -> Wire {
    let mut wire = Wire::open(api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };
    wire
}

#[tokio::test]
async fn the_10001st_watch_is_refused_until_another_ends() {
    let _alone = alone().await;
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let many = (0..10).map(|_| unread_watches(&node, WATCHERS_MAX / 10));
    let mut open = futures_util::future::join_all(many).await;

    let refused = watch(&mut api, "").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let refused = refusal(&refused);
    assert_eq!(refused.reason, Reason::Limit);
    assert_eq!(refused.metadata["limit"], "watchers_per_node");
    assert_eq!(refused.metadata["max"], WATCHERS_MAX.to_string());
    let floors = v1::WatchFloorsRequest::default();
    let refused = api.leases.watch_floors(floors).await.unwrap_err();
    assert_eq!(refusal(&refused).reason, Reason::Limit);

    // Others are served meanwhile, and a place that is given back is used.
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();
    drop(open[0].pop());
    let served = async {
        while watch(&mut api, "").await.is_err() {
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, served).await.expect("a place is free");
}

#[tokio::test]
async fn watches_that_nobody_reads_are_told_compacted_and_cost_little() {
    const IDLE: usize = 100;
    let _alone = alone().await;
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let mut wire = wire(&mut api).await;
    let holder = api.open("holder").await;
    let kept = api.acquire(&holder, 1, "kept").await.unwrap();

    let mut lagging = watch(&mut api, "").await.unwrap();
    let from = next(&mut lagging).await.position;
    let mut others = Api::of(&node).await;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(watch(&mut others, "").await.unwrap());
    }
    // The ring is full when this is over, so what comes after it costs nothing but watches.
    let rounds = EVENTS_KEPT / (2 * LEASES_MAX as usize) + 1;
    for _ in 0..rounds {
        churn(&mut api, &mut wire, 0).await;
    }
    // The allocator of a busy machine may keep what it was given back for a while; watches that keep events
    // grow each time.
    let mut grown = Vec::new();
    while grown.last().is_none_or(|last| *last >= 32 * MIB) {
        assert!(grown.len() < 5, "{IDLE} idle watches: {grown:?} bytes more");
        let full = node.resident();
        for _ in 0..2 {
            churn(&mut api, &mut wire, 0).await;
        }
        grown.push(node.resident().saturating_sub(full));
    }
    let full = node.resident();
    assert!(full < 330 * MIB, "{full} bytes");

    // Who goes on from a position of before begins again, with what is held now.
    let request = v1::WatchRequest {
        prefix: String::new(),
        from,
    };
    let mut resumed = api.leases.watch(request).await.unwrap().into_inner();
    let first = next(&mut resumed).await;
    assert!(first.compacted, "{first:?}");
    assert_present(&first, kept.token);

    // Who did not read hears first what was on its way, then the same.
    let mut told = 0;
    let present = loop {
        let message = next(&mut lagging).await;
        if message.compacted {
            break message;
        }
        told += message.events.len();
    };
    assert!(told < EVENTS_KEPT / 2, "{told} events were kept for it");
    assert_present(&present, kept.token);
    let after = api.acquire(&holder, 2, "after").await.unwrap();
    let granted = loop {
        if let Some(event) = next(&mut lagging).await.events.pop() {
            break event;
        }
    };
    let Some(Kind::Granted(grant)) = granted.kind else {
        panic!("{granted:?}")
    };
    assert_eq!(grant.token, after.token);
    drop(idle);
}

/// It tells of this grant, and of no other.
#[track_caller]
fn assert_present(message: &v1::WatchResponse, token: u64) {
    let [
        v1::WatchEvent {
            kind: Some(Kind::Present(lease)),
            ..
        },
    ] = &message.events[..]
    else {
        panic!("{message:?}")
    };
    assert_eq!(lease.holder.as_ref().unwrap().token, token);
    assert!(message.position.is_some());
}

#[tokio::test]
async fn a_stream_whose_replies_nobody_reads_is_not_read_either() {
    const ASKED: u64 = 100_000;
    let _alone = alone().await;
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let large = v1::AcquireRequest {
        data: vec![b'd'; 1_024].into(),
        ..acquire_request(&alice, 1, "db")
    };
    api.leases.acquire(large).await.unwrap();
    let mut wire = wire(&mut api).await;
    let before = node.resident();

    let get = v1::GetRequest {
        name: "db".to_owned(),
        read: None,
    };
    for first in (1..=ASKED).step_by(1_000) {
        wire.ask((first..first + 1_000).map(|id| (id, Ask::Get(get.clone()))));
    }
    let calls = "ringfence_requests_total{call=\"get\"";
    let (mut answered, mut looks) = (0, 0);
    while looks < 10 {
        sleep(GLANCE).await;
        let now = figure(&node, calls);
        looks = if now == answered && now > 0 {
            looks + 1
        } else {
            0
        };
        answered = now;
    }

    assert!(answered < ASKED / 2, "{answered} replies wait for a reader");
    let grown = node.resident().saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes for {answered} replies");
    // Others are served, and so is this one as soon as it reads.
    let mut other = Api::of(&node).await;
    other.get("db").await.unwrap();
    for _ in 0..ASKED {
        let (_, body) = wire.reply().await;
        assert!(matches!(body, Body::Get(_)), "{body:?}");
    }
}
