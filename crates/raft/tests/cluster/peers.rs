//! What a leader takes from another node: a stream with forged commands, on a real connection.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use ringfence_core::{
    ClusterId, Command, Form, Millis, Outcome, PodEnded, PodSeen, PodUid, Renew, Settings,
};
use ringfence_proto::raft as pb;
use ringfence_proto::raft::peers_client::PeersClient;
use ringfence_proto::record::{RECORD_VERSION, decode_outcome, encode_command, encode_record};
use ringfence_raft::{Node, NodeConfig, PeerTls};
use ringfence_testkit::certificates::{Authority, Signed};
use ringfence_tls::{Acceptor, ClientTls, Connector, PeerName, Pem, ServerTls};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

use crate::harness::{Cluster, acquire, acquired, eventually, open, within};

/// A caller with the right to speak to the peer port.
struct Forger {
    calls: mpsc::Sender<pb::Calls>,
    answers: Streaming<pb::Answers>,
    id: u64,
}

impl Forger {
    /// A stream of calls to this node, from a node that no one knows.
    async fn of(node: &Node) -> Self {
        let address = format!("http://{}", node.peer_address());
        let mut client = PeersClient::connect(address).await.unwrap();
        let hello = client.hello(pb::HelloRequest::default()).await.unwrap();
        let hello = hello.into_inner();
        let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (cluster, incarnation): (String, String) =
            (hex(&hello.cluster), hex(&hello.incarnation));
        let to = format!("{}.{incarnation}", hello.node_id);
        let from = format!("99.{}", "5a".repeat(16));
        let (calls, sent) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(sent));
        let metadata = request.metadata_mut();
        metadata.insert("ringfence-cluster", cluster.parse().unwrap());
        metadata.insert("ringfence-from", from.parse().unwrap());
        metadata.insert("ringfence-to", to.parse().unwrap());
        metadata.insert("ringfence-records", RECORD_VERSION.into());
        let answers = client.forward(request).await.unwrap().into_inner();
        Self {
            calls,
            answers,
            id: 0,
        }
    }

    async fn propose(&mut self, command: Bytes) -> pb::answer::Body {
        self.id += 1;
        let body = Some(pb::call::Body::Propose(command));
        let call = pb::Call {
            id: self.id,
            body,
            ..Default::default()
        };
        self.calls
            .send(pb::Calls { calls: vec![call] })
            .await
            .unwrap();
        let frame = within("an answer", self.answers.next()).await;
        let answer = frame.unwrap().unwrap().answers.remove(0);
        assert_eq!(answer.id, self.id);
        answer.body.unwrap()
    }
}

/// Everything that the state holds, as a snapshot would.
fn state(node: &Node) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in node.frozen().records() {
        encode_record(&record, &mut bytes);
    }
    bytes
}

/// What no client asks for, each with the word by which it is refused.
fn forged(sessions: Renew) -> Vec<(&'static str, Command)> {
    vec![
        (
            "Form",
            Command::Form(Form {
                cluster: ClusterId::new([9; 16]),
                token_floor: Some(1 << 40),
                settings: Settings::STANDARD,
                mode: ringfence_core::Mode::Off,
                quiet_time: Millis(0),
                restored: None,
            }),
        ),
        (
            "TermStart",
            Command::TermStart {
                unix_seconds: Some(1 << 33),
            },
        ),
        ("Tick", Command::Tick),
        ("Renew", Command::Renew(sessions)),
        ("DrawNodeId", Command::DrawNodeId),
        (
            "PodEnded",
            Command::PodEnded(PodEnded {
                uid: PodUid::parse("a3d1c1ee-0000-4000-8000-000000000001").unwrap(),
                seen: PodSeen::Gone,
            }),
        ),
        ("RaiseLevel", Command::RaiseLevel { level: 1 }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_proposes_nothing_that_clients_may_not_ask_for() {
    let cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let level = || leader.read(|state| state.level());
    eventually("the level of this release", || level() == RECORD_VERSION).await;
    let mut forger = Forger::of(&leader).await;
    let before = (leader.status().applied_index, state(&leader));

    for (kind, command) in forged(Renew::default()) {
        let body = forger.propose(encode_command(&command)).await;
        let pb::answer::Body::Failure(failure) = body else {
            panic!("{kind}: {body:?}")
        };
        assert_eq!(failure.kind(), pb::failure::Kind::Refused, "{kind}");
        let words = format!("a {kind} is proposed by a leader alone");
        assert!(failure.why.contains(&words), "{kind}: {}", failure.why);
    }
    // A command that shows a kind of clients and is followed by another one.
    let mut two = vec![0x2a, 0x00];
    two.extend(encode_command(&Command::Tick));
    let body = forger.propose(two.into()).await;
    assert!(
        matches!(&body, pb::answer::Body::Failure(failure)
            if failure.kind() == pb::failure::Kind::NotDone),
        "{body:?}"
    );
    // Whatever was logged would be applied by now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let after = (leader.status().applied_index, state(&leader));
    assert!(before == after, "the state has changed");

    // A session of a minute is not kept alive without its secret.
    let session = open(&leader, 1, Millis::from_secs(60)).await;
    acquired(&leader, session, 1, "lease/1").await;
    let end = || {
        leader.read(|state| {
            let view = state.session(session.id)?;
            Some(state.time().0 + view.remaining.0)
        })
    };
    let before = end();
    let renew = Renew {
        sessions: vec![session.id],
        ..Renew::default()
    };
    let body = forger.propose(encode_command(&Command::Renew(renew))).await;
    assert!(matches!(body, pb::answer::Body::Failure(_)), "{body:?}");
    assert_eq!(end(), before);

    // What clients ask for passes.
    let asked = acquire(session, 2, "lease/2", None);
    let body = forger.propose(encode_command(&asked)).await;
    let pb::answer::Body::Applied(applied) = body else {
        panic!("{body:?}")
    };
    let outcome = decode_outcome(&applied.outcome).unwrap();
    assert!(matches!(outcome, Outcome::Acquired(_)), "{outcome:?}");
}

static OURS: LazyLock<Authority> = LazyLock::new(|| Authority::new("ours"));

fn text(text: &str) -> Pem {
    Pem::Text(text.as_bytes().into())
}

/// What a node with this certificate connects with.
fn connector(shown: &Signed) -> Connector {
    let tls = ClientTls {
        ca: vec![text(OURS.pem())],
        certificate: Some((text(&shown.certificate), text(&shown.key))),
        server_name: None,
        fall_back_to_plain: false,
    };
    Connector::new(tls).unwrap()
}

/// Gives a node a certificate; it demands one, with one of these names if there are any.
fn with_tls(config: &mut NodeConfig, names: &[&str]) {
    with_tls_or_without(config, names, false);
}

/// The same, and callers without TLS are admitted as well if `admit_plain`.
fn with_tls_or_without(config: &mut NodeConfig, names: &[&str], admit_plain: bool) {
    let signed = OURS.sign(&["127.0.0.1", "peer.example"]);
    let accept = ServerTls {
        certificate: text(&signed.certificate),
        key: text(&signed.key),
        client_ca: Some(text(OURS.pem())),
        demand_client_certificate: true,
        peer_names: names.iter().map(|n| PeerName::parse(n).unwrap()).collect(),
        admit_plain,
    };
    // Only what TLS proves counts here.
    config.peer_port_is_local = false;
    config.peer_tls = Some(PeerTls {
        accept: Acceptor::new(accept).unwrap(),
        connect: connector(&signed),
    });
}

/// What a node answers to a caller with this certificate that wants to join, to append and to hand a
/// call on.
async fn asked_by(node: &Node, shown: &Signed) -> [Result<(), Status>; 3] {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.peer_address())).unwrap();
    let channel = endpoint
        .origin(format!("https://{}", node.peer_address()).parse().unwrap())
        .connect_with_connector_lazy(connector(shown));
    let mut client = PeersClient::new(channel);
    let join = client.join(pb::JoinRequest::default()).await.map(drop);
    let nothing = futures_util::stream::pending::<pb::AppendRequest>();
    let append = client.append(nothing).await.map(drop);
    let nothing = futures_util::stream::pending::<pb::Calls>();
    let forward = client.forward(nothing).await.map(drop);
    [join, append, forward]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_of_the_same_authority_is_refused_in_the_handshake() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]);
    cluster.adjust = |config| with_tls(config, &["peer.example"]);
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();

    let client = OURS.sign(&["client.example"]);
    for refused in within("an answer", asked_by(&node, &client)).await {
        let refused = refused.unwrap_err();
        // The connection ended, and no service answered.
        let source = std::error::Error::source(&refused);
        assert!(source.is_some(), "{refused}");
    }
    // The same calls by a node come through, and are judged by what they say.
    let peer = OURS.sign(&["peer.example"]);
    let [join, append, forward] = within("an answer", asked_by(&node, &peer)).await;
    assert!(join.is_ok(), "{join:?}");
    for judged in [append, forward] {
        assert_eq!(judged.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
    let session = open(&node, 1, Millis::from_secs(60)).await;
    acquired(&node, session, 1, "lease/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_knows_whose_peer_port_is_authenticated() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]);
    cluster.adjust = |config| match config.name.as_str() {
        "n3" => with_tls(config, &[]),
        "n2" => with_tls_or_without(config, &["peer.example"], true),
        _ => with_tls(config, &["peer.example"]),
    };
    cluster.start_all().await;
    assert!(cluster.nodes["n1"].peer_authenticated());
    assert!(!cluster.nodes["n2"].peer_authenticated());
    assert!(!cluster.nodes["n3"].peer_authenticated());
    let said = |cluster: &Cluster| {
        let mut nodes = cluster.nodes.values();
        nodes.find_map(|node| match node.peers_authenticated() {
            Err(why) if why.contains("does not lead") => None,
            said => Some(said),
        })
    };
    eventually("n2 and n3", || {
        said(&cluster).is_some_and(|said| {
            said.is_err_and(|why| {
                why.contains("n2 (node") && why.contains("n3 (node") && !why.contains("n1 (")
            })
        })
    })
    .await;

    cluster.adjust = |config| with_tls(config, &["peer.example"]);
    for name in ["n2", "n3"] {
        cluster.crash(name).await;
        cluster.start(name).await;
        cluster.serving(name).await;
    }
    eventually("all of them", || said(&cluster) == Some(Ok(()))).await;
}
