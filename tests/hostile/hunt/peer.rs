//! Processes at the peer ports: one with the certificate of a node, which speaks Raft as one that lags
//! or is damaged would; and those without such a certificate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_proto::raft as pb;
use ringfence_tests::Journal;
use ringfence_tls::Connector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};

use super::calls::{Answer, call};
use super::doors::{Node, channel};
use super::forger::Siege;

/// How long a stream stays open.
const STREAM: Duration = Duration::from_millis(700);
/// RPCs of peers, and whether they take a stream.
const RPCS: [(&str, bool); 10] = [
    ("Hello", false),
    ("Adopt", false),
    ("Join", false),
    ("Append", true),
    ("Heartbeat", false),
    ("Vote", false),
    ("Snapshot", true),
    ("TransferLeader", false),
    ("Forward", true),
    ("FetchHistory", false),
];
/// Sockets of one stranger that are open at a time: with those of three others at three ports, more
/// than a peer port takes.
const SOCKETS: usize = 250;

impl Siege {
    /// Speaks as a peer that lags or is damaged, until the end.
    pub(super) async fn speak(self: Arc<Self>, connector: Connector, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while Journal::now() < self.until {
            let node = &self.nodes[random.random_range(0..self.nodes.len())];
            let (rpc, takes_stream) = RPCS[random.random_range(0..RPCS.len())];
            let many = if takes_stream {
                random.random_range(1..6)
            } else {
                1
            };
            let messages: Vec<Bytes> = (0..many).map(|_| message(&mut random, rpc)).collect();
            let (headers, meant) = headers(&mut random, node);
            let path = format!("/ringfence.raft.v1.Peers/{rpc}");
            let to = channel(&node.address, connector.clone());
            let answer = call(to, path, messages, &headers, STREAM).await;
            let word = word(&answer);
            self.figures.count(&format!("peer: {rpc}"), &word);
            self.figures.count("all of peer", &word);
            let free = matches!(rpc, "Hello" | "Adopt" | "Join");
            if !meant && !free && !answer.messages.is_empty() {
                self.figures
                    .found(&format!("{rpc} for another node was answered"));
            }
            if let Err(wrong) = judge(rpc, &answer) {
                self.figures.found(&format!("{rpc} of a peer: {wrong}"));
            }
        }
    }

    /// Asks with a certificate that is no node's, or without one: no service answers.
    pub(super) async fn knock(self: Arc<Self>, who: &'static str, connector: Connector, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while Journal::now() < self.until {
            let node = &self.nodes[random.random_range(0..self.nodes.len())];
            let (rpc, _) = RPCS[random.random_range(0..RPCS.len())];
            let sent = vec![message(&mut random, rpc)];
            let path = format!("/ringfence.raft.v1.Peers/{rpc}");
            let to = channel(&node.address, connector.clone());
            let answer = call(to, path, sent, &node.headers(), STREAM).await;
            let word = word(&answer);
            self.figures.count(who, &word);
            self.figures.count("all of strangers", &word);
            let refused = match &answer.end {
                None => answer.messages.is_empty(),
                // The connection ended, and no service answered.
                Some(Err(status)) => std::error::Error::source(status).is_some(),
                Some(Ok(())) => false,
            };
            if !refused {
                self.figures
                    .found(&format!("{who} was answered {word} by {rpc}"));
            }
        }
    }

    /// Opens sockets and says nothing, little, slowly, or garbage.
    pub(super) async fn crowd(self: Arc<Self>, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut open = Vec::new();
        while Journal::now() < self.until {
            let node = &self.nodes[random.random_range(0..self.nodes.len())];
            let connecting = timeout(STREAM, TcpStream::connect(&node.address)).await;
            let Ok(Ok(mut socket)) = connecting else {
                self.figures.count("all of strangers", "not connected");
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let says = bytes(&mut random);
            let writing = timeout(STREAM, socket.write_all(&says)).await;
            let word = match writing {
                Ok(Ok(())) => "a socket",
                _ => "a socket that was cut off",
            };
            self.figures.count("all of strangers", word);
            if random.random_range(0..4) == 0 {
                let mut answer = [0; 256];
                let heard = timeout(Duration::from_millis(50), socket.read(&mut answer)).await;
                if let Ok(Ok(read)) = heard
                    && answer[..read].windows(4).any(|window| window == b"grpc")
                {
                    self.figures.found("a service answered without TLS");
                }
            }
            open.push(socket);
            if open.len() > SOCKETS {
                let at = random.random_range(0..open.len());
                drop(open.swap_remove(at));
            }
            sleep(Duration::from_millis(random.random_range(0..10))).await;
        }
    }
}

/// What begins like TLS, like HTTP/2, or like nothing.
fn bytes(random: &mut StdRng) -> Vec<u8> {
    let mut says = match random.random_range(0..6) {
        0 => Vec::new(),
        1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        2 => b"POST /ringfence.raft.v1.Peers/Join HTTP/1.1\r\n\r\n".to_vec(),
        3 => vec![22, 3, 1, 0xff, 0xff, 1, 0, 0xff],
        // Half of a greeting.
        4 => vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        _ => vec![255],
    };
    let more = random.random_range(0..600);
    says.extend((0..more).map(|_| random.random::<u8>()));
    says
}

/// Headers that are meant for this node, and that they are; or others.
fn headers(random: &mut StdRng, node: &Node) -> (Vec<(&'static str, MetadataValue<Ascii>)>, bool) {
    let mut headers = node.headers();
    if random.random_range(0..3) > 0 {
        return (headers, true);
    }
    let at = random.random_range(0..3);
    match random.random_range(0..3) {
        0 => drop(headers.remove(at)),
        1 => headers[at].1 = "0".repeat(random.random_range(0..5_000)).parse().unwrap(),
        _ => {
            let mut text = headers[at].1.to_str().unwrap().to_owned();
            text.pop();
            headers[at].1 = text.parse().unwrap();
        }
    }
    (headers, false)
}

/// A message of an old term, without what it needs, or of random bytes. What a member of the present term
/// may say is a member's to say.
fn message(random: &mut StdRng, rpc: &str) -> Bytes {
    if random.random_range(0..5) == 0 {
        return (0..random.random_range(0..3_000))
            .map(|_| random.random::<u8>())
            .collect();
    }
    let text = |random: &mut StdRng| "n".repeat(random.random_range(0..300));
    let some = |random: &mut StdRng| -> Bytes {
        let length = [0, 15, 16, 17, 4_000][random.random_range(0..5)];
        (0..length).map(|_| random.random::<u8>()).collect()
    };
    let log_id = |random: &mut StdRng| {
        let (term, index) = (random.random_range(0..3), random.random());
        (random.random_range(0..4) > 0).then_some(pb::LogId { term, index })
    };
    // Term 0 has no leader.
    let vote = |random: &mut StdRng| {
        let (node_id, committed) = (random.random_range(0..5), random.random());
        let vote = pb::Vote {
            term: 0,
            node_id,
            committed,
        };
        (random.random_range(0..6) > 0).then_some(vote)
    };
    let member = |random: &mut StdRng| pb::Member {
        node_id: random.random_range(0..9),
        name: text(random),
        peer_address: "127.0.0.1:1".to_owned(),
        client_address: "127.0.0.1:1".to_owned(),
        incarnation: some(random),
    };
    let bytes = match rpc {
        "Hello" => pb::HelloRequest {
            name: text(random),
            incarnation: some(random),
            cluster: some(random),
            node_id: random.random_range(0..9),
            membership_index: random.random(),
            lineage: vec![some(random)],
        }
        .encode_to_vec(),
        "Adopt" => pb::AdoptRequest {
            cluster: some(random),
            member: Some(member(random)),
            restores: some(random),
        }
        .encode_to_vec(),
        "Join" => pb::JoinRequest {
            name: text(random),
            peer_address: text(random),
            client_address: text(random),
            incarnation: some(random),
            peer_authenticated: false,
        }
        .encode_to_vec(),
        "Append" | "Heartbeat" => pb::AppendRequest {
            vote: vote(random),
            previous: log_id(random),
            entries: (0..random.random_range(0..4))
                .map(|_| pb::Entry {
                    term: random.random_range(0..3),
                    index: random.random_range(0..2_000),
                    payload: some(random),
                })
                .collect(),
            committed: log_id(random),
            forgotten: log_id(random),
        }
        .encode_to_vec(),
        "Vote" => pb::VoteRequest {
            vote: vote(random),
            last: log_id(random),
            leadership_transfer: random.random(),
            pre_vote: random.random(),
        }
        .encode_to_vec(),
        "Snapshot" => pb::SnapshotPart {
            offer: (random.random_range(0..5) > 0).then(|| pb::SnapshotOffer {
                vote: vote(random),
                last: log_id(random),
                membership_at: log_id(random),
                membership: Some(pb::Membership::default()),
            }),
            data: some(random),
        }
        .encode_to_vec(),
        "TransferLeader" => pb::TransferLeaderRequest {
            from: vote(random),
            to: random.random_range(0..5),
            last: log_id(random),
        }
        .encode_to_vec(),
        "FetchHistory" => pb::FetchHistoryRequest {
            first: random.random_range(0..100),
            last: random.random(),
        }
        .encode_to_vec(),
        _ => Vec::new(),
    };
    bytes.into()
}

fn word(answer: &Answer) -> String {
    match &answer.end {
        Some(Err(status)) => format!("{:?}", status.code()),
        _ if answer.messages.is_empty() => "nothing".to_owned(),
        _ => "answered".to_owned(),
    }
}

fn judge(rpc: &str, answer: &Answer) -> Result<(), String> {
    for message in &answer.messages {
        let message = message.clone();
        match rpc {
            "Adopt" if pb::AdoptResponse::decode(message.clone()).unwrap().adopted => {
                return Err("a member was adopted by another".to_owned());
            }
            "Join" => {
                let joined = pb::JoinResponse::decode(message).unwrap();
                if joined.node_id != 0 || joined.why_not.is_empty() {
                    return Err(format!("an open peer port was taken in: {joined:?}"));
                }
            }
            "Vote" if pb::VoteResponse::decode(message.clone()).unwrap().granted => {
                return Err("a vote in term 0".to_owned());
            }
            "Append" | "Heartbeat" => {
                let appended = pb::AppendResponse::decode(message).unwrap();
                use pb::append_response::Kind;
                if matches!(appended.kind(), Kind::Success | Kind::Partial) {
                    return Err(format!("entries of term 0 were appended: {appended:?}"));
                }
            }
            "Snapshot" => return Err("a snapshot was installed".to_owned()),
            _ => {}
        }
    }
    Ok(())
}
