//! The multiplexed stream.

use ringfence_proto::v1;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use crate::api::{Api, acquire_request, open_request, refusal};
use crate::process::{PATIENCE, single};

/// One open stream.
pub(crate) struct Wire {
    asks: mpsc::UnboundedSender<v1::ClientMessage>,
    replies: Streaming<v1::ServerMessage>,
    frames: std::collections::VecDeque<v1::ServerFrame>,
}

impl Wire {
    pub(crate) async fn open(api: &mut Api) -> Result<Self, Status> {
        let (asks, outgoing) = mpsc::unbounded_channel();
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let replies = api.connection.stream(outgoing).await?.into_inner();
        Ok(Self {
            asks,
            replies,
            frames: Default::default(),
        })
    }

    pub(crate) fn ask(&self, frames: impl IntoIterator<Item = (u64, Ask)>) {
        let frames = frames.into_iter().map(|(id, body)| v1::ClientFrame {
            id,
            body: Some(body),
            ..Default::default()
        });
        self.send(frames.collect());
    }

    pub(crate) fn send(&self, frames: Vec<v1::ClientFrame>) {
        self.asks.send(v1::ClientMessage { frames }).unwrap();
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Body)>, Status> {
        while self.frames.is_empty() {
            let message = timeout(PATIENCE, self.replies.message()).await;
            match message.expect("a message in time")? {
                Some(message) => self.frames.extend(message.frames),
                None => return Ok(None),
            }
        }
        let frame = self.frames.pop_front().unwrap();
        Ok(Some((frame.id, frame.body.unwrap())))
    }

    /// The next frame, which must be a reply.
    pub(crate) async fn reply(&mut self) -> (u64, Body) {
        self.next().await.unwrap().expect("the stream goes on")
    }
}

#[tokio::test]
async fn a_stream_begins_with_a_greeting_and_answers_every_kind_of_request() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let mut wire = Wire::open(&mut api).await.unwrap();

    let (id, Body::Greeting(greeting)) = wire.reply().await else {
        panic!("no greeting")
    };
    assert_eq!((id, greeting.node_id, greeting.leader_id), (0, 1, 1));
    assert_eq!(greeting.cluster_id.len(), 16);

    let open = open_request("alice");
    let secret = open.secret.clone();
    wire.ask([(1, Ask::Open(open))]);
    let (1, Body::Open(opened)) = wire.reply().await else {
        panic!("no session")
    };
    let alice = v1::SessionHandle {
        session: opened.session,
        secret,
    };

    wire.ask([(2, Ask::Acquire(acquire_request(&alice, 1, "db")))]);
    let (2, Body::Acquire(acquired)) = wire.reply().await else {
        panic!("no grant")
    };
    let token = acquired.grant.unwrap().token;

    let name = || "db".to_owned();
    wire.ask([
        (
            3,
            Ask::Get(v1::GetRequest {
                name: name(),
                read: None,
            }),
        ),
        (
            4,
            Ask::Check(v1::CheckRequest {
                name: name(),
                token,
                read: None,
            }),
        ),
    ]);
    let (3, Body::Get(_)) = wire.reply().await else {
        panic!("no lease")
    };
    let (4, Body::Check(check)) = wire.reply().await else {
        panic!("no verdict")
    };
    assert_eq!(check.verdict(), v1::check_response::Verdict::Current);

    let sessions = vec![alice.clone()];
    wire.ask([(
        5,
        Ask::KeepAlive(v1::KeepAliveRequest {
            sessions,
            ..Default::default()
        }),
    )]);
    let (5, Body::KeepAlive(kept)) = wire.reply().await else {
        panic!("not kept alive")
    };
    assert!(kept.ended.is_empty() && kept.lost.is_empty());

    wire.ask([(
        6,
        Ask::Close(v1::CloseRequest {
            session: Some(alice),
        }),
    )]);
    let (6, Body::Close(_)) = wire.reply().await else {
        panic!("not closed")
    };
}

#[tokio::test]
async fn requests_behind_a_waiting_one_are_answered_before_it() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let mut wire = Wire::open(&mut api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };

    let waiting = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(&bob, 1, "db")
    };
    wire.ask([(7, Ask::Acquire(waiting))]);
    while api.get("db").await.unwrap().waiters == 0 {}
    let release = v1::ReleaseRequest {
        session: Some(alice),
        number: 2,
        name: grant.name,
        token: grant.token,
        ..Default::default()
    };
    wire.ask([(
        8,
        Ask::Get(v1::GetRequest {
            name: "db".to_owned(),
            read: None,
        }),
    )]);
    let (8, Body::Get(_)) = wire.reply().await else {
        panic!("no lease")
    };
    wire.ask([(9, Ask::Release(release))]);

    let mut told = [wire.reply().await, wire.reply().await];
    told.sort_by_key(|(id, _)| *id);
    let [(7, Body::Acquire(acquired)), (9, Body::Release(_))] = told else {
        panic!("{told:?}")
    };
    assert_eq!(acquired.grant.unwrap().token, grant.token + 1);
}

#[tokio::test]
async fn an_inline_open_that_waits_is_granted_in_its_turn() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let mut wire = Wire::open(&mut api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };

    let waiting = v1::AcquireRequest {
        open: Some(open_request("bob")),
        wait_ms: Some(10_000),
        name: "db".to_owned(),
        ..Default::default()
    };
    wire.ask([(7, Ask::Acquire(waiting))]);
    while api.get("db").await.unwrap().waiters == 0 {}
    api.release(&alice, 2, &grant).await.unwrap();

    let (7, Body::Acquire(acquired)) = wire.reply().await else {
        panic!("no grant")
    };
    assert_eq!(
        acquired.grant.unwrap().session,
        acquired.opened.unwrap().session
    );
}

#[tokio::test]
async fn a_thousand_requests_in_one_message_are_all_answered() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let mut wire = Wire::open(&mut api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };

    let check = |id| {
        (
            id,
            Ask::Check(v1::CheckRequest {
                name: "db".to_owned(),
                token: 1,
                read: None,
            }),
        )
    };
    let keep = |id| {
        let sessions = vec![alice.clone()];
        (
            id,
            Ask::KeepAlive(v1::KeepAliveRequest {
                sessions,
                ..Default::default()
            }),
        )
    };
    wire.ask((1..=500).map(check).chain((501..=1_000).map(keep)));

    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1_000 {
        let (id, body) = wire.reply().await;
        assert!(!matches!(body, Body::Refusal(_)), "{body:?}");
        assert!(seen.insert(id), "{id} was answered twice");
    }
}

#[tokio::test]
async fn a_bad_frame_is_refused_alone_and_a_bad_protocol_ends_the_stream() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let mut wire = Wire::open(&mut api).await.unwrap();
    let (0, Body::Greeting(_)) = wire.reply().await else {
        panic!("no greeting")
    };

    wire.ask([
        (1, Ask::Acquire(acquire_request(&alice, 1, "d b"))),
        (2, Ask::Acquire(acquire_request(&alice, 1, "db"))),
    ]);
    let mut told = [wire.reply().await, wire.reply().await];
    told.sort_by_key(|(id, _)| *id);
    let [(1, Body::Refusal(refused)), (2, Body::Acquire(_))] = told else {
        panic!("{told:?}")
    };
    assert_eq!(refused.reason(), v1::Reason::InvalidArgument);

    wire.ask([(0, Ask::Acquire(acquire_request(&alice, 2, "other")))]);
    let ended = wire.next().await.unwrap_err();
    assert_eq!(refusal(&ended).metadata["field"], "frames.id");
}
