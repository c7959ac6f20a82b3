//! A process with the certificate of a node, which hands on to leaders what no client can have asked for.
//!
//! Members are trusted to name callers, so no forged call here names an honest one; everything else that
//! it says is refused, or is judged as what the caller that it names may do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_core::{
    Called, Caller, ClusterId, Command, Evict, Form, Mode, Outcome, PodEnded, PodSeen, PodUid,
    Principal, Renew, Secret, SessionId, Settings,
};
use ringfence_proto::raft as pb;
use ringfence_proto::record::{RECORD_VERSION, decode_outcome, encode_command};
use ringfence_tests::Journal;
use ringfence_tls::Connector;

use super::calls::call;
use super::doors::{Node, channel};
use super::figures::Figures;
use super::known::Known;

/// How long a stream of calls stays open.
const STREAM: Duration = Duration::from_millis(800);

/// What processes at the peer ports share.
pub(super) struct Siege {
    pub(super) nodes: Vec<Node>,
    pub(super) known: Known,
    pub(super) figures: Arc<Figures>,
    pub(super) until: Duration,
}

/// What is allowed to come of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Only a leader proposes it.
    Refused,
    /// It is logged and rejected, or not logged.
    Rejected,
    /// No session is renewed.
    NotKept,
    /// The members stay.
    Unchanged,
    /// It says where the log is.
    Read,
}

/// A call, what it is, and what may come of it.
type Drawn = (&'static str, pb::call::Body, Due);

impl Siege {
    /// Forges calls until the end.
    pub(super) async fn forge(self: Arc<Self>, connector: Connector, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while Journal::now() < self.until {
            let node = &self.nodes[random.random_range(0..self.nodes.len())];
            let drawn: Vec<Drawn> = (0..random.random_range(1..24))
                .map(|_| self.draw(&mut random))
                .collect();
            let calls = (1..).zip(&drawn).map(|(id, (_, body, _))| pb::Call {
                id,
                body: Some(body.clone()),
                ..pb::Call::default()
            });
            let calls: Vec<pb::Call> = calls.collect();
            // Some in one message, and the stream stays open.
            let messages = calls.chunks(random.random_range(1..6)).map(|calls| {
                let calls = calls.to_vec();
                Bytes::from(pb::Calls { calls }.encode_to_vec())
            });
            let mut messages: Vec<Bytes> = messages.collect();
            if messages.len() == 1 {
                messages.push(Bytes::new());
            }
            let path = "/ringfence.raft.v1.Peers/Forward".to_owned();
            let to = channel(&node.address, connector.clone());
            let answer = call(to, path, messages, &node.headers(), STREAM).await;
            if let Some(Err(status)) = &answer.end {
                self.figures
                    .count("forger: streams", &format!("{:?}", status.code()));
            }
            for message in &answer.messages {
                let answers = pb::Answers::decode(message.clone()).unwrap().answers;
                for answer in answers {
                    let (what, asked, due) = &drawn[answer.id as usize - 1];
                    let came = answer.body.unwrap();
                    self.figures.count(&format!("forger: {what}"), word(&came));
                    self.figures.count("all of forger", word(&came));
                    if let Err(wrong) = judge(asked, *due, &came) {
                        self.figures
                            .found(&format!("{what} of a forger: {wrong}: {came:?}"));
                    }
                }
            }
        }
    }

    fn draw(&self, random: &mut StdRng) -> Drawn {
        let propose = |command: &Command| pb::call::Body::Propose(encode_command(command));
        match random.random_range(0..12) {
            0..=4 => {
                let (what, command) = self.of_leaders(random);
                match random.random_range(0..4) {
                    0 => (
                        "Called with a leader's own",
                        propose(&called(Principal::local(), command)),
                        Due::Refused,
                    ),
                    _ => (what, propose(&command), Due::Refused),
                }
            }
            5..=6 => {
                // Read as something, and something else behind it; or no command at all.
                let mut bytes = encode_command(&self.of_clients(random)).to_vec();
                match random.random_range(0..4) {
                    0 => bytes.truncate(bytes.len() / 2),
                    1 => bytes.extend(encode_command(&Command::Tick)),
                    2 => {
                        bytes = (0..random.random_range(0..900))
                            .map(|_| random.random())
                            .collect();
                    }
                    _ => {
                        let at = random.random_range(0..bytes.len());
                        bytes[at] ^= 1 << random.random_range(0..8);
                    }
                }
                (
                    "damaged",
                    pb::call::Body::Propose(bytes.into()),
                    Due::Rejected,
                )
            }
            7..=8 => {
                let command = self.of_clients(random);
                let command = match random.random_range(0..3) {
                    0 => command,
                    _ => called(Principal::parse("token:raider").unwrap(), command),
                };
                ("in another's session", propose(&command), Due::Rejected)
            }
            9 => ("KeepAlive", self.keep_alive(random), Due::NotKept),
            10 => ("ChangeMembers", change(random), Due::Unchanged),
            _ => (
                "ReadIndex",
                pb::call::Body::ReadIndex(pb::Nothing {}),
                Due::Read,
            ),
        }
    }

    fn of_leaders(&self, random: &mut StdRng) -> (&'static str, Command) {
        let sessions = self.known.stolen.iter();
        let sessions = sessions.filter_map(|stolen| SessionId::new(stolen.handle.session));
        let renew = Renew {
            sessions: sessions
                .chain(SessionId::new(random.random_range(1..60)))
                .collect(),
            ..Renew::default()
        };
        match random.random_range(0..7) {
            0 => {
                let form = Form {
                    cluster: ClusterId::new(random.random()),
                    token_floor: Some(random.random_range(0..1 << 52)),
                    settings: Settings::STANDARD,
                    mode: Mode::Off,
                    quiet_time: ringfence_core::Millis(0),
                    restored: None,
                };
                ("Form", Command::Form(form))
            }
            1 => {
                let unix_seconds = Some(random.random_range(0..1 << 40));
                ("TermStart", Command::TermStart { unix_seconds })
            }
            2 => ("Tick", Command::Tick),
            3 => ("Renew", Command::Renew(renew)),
            4 => ("DrawNodeId", Command::DrawNodeId),
            5 => {
                let uid = PodUid::parse("a3d1c1ee-0000-4000-8000-000000000001").unwrap();
                let seen = PodSeen::Gone;
                ("PodEnded", Command::PodEnded(PodEnded { uid, seen }))
            }
            _ => {
                let level = random.random_range(0..=RECORD_VERSION + 9);
                ("RaiseLevel", Command::RaiseLevel { level })
            }
        }
    }

    /// What its caller may not do: for the session of another, or without a right.
    fn of_clients(&self, random: &mut StdRng) -> Command {
        let at = random.random_range(0..self.known.stolen.len());
        let handle = &self.known.stolen[at].handle;
        let session = SessionId::new(handle.session).unwrap();
        let known: [u8; 16] = handle.secret.to_vec().try_into().unwrap();
        let secret = match random.random_range(0..3) {
            0 => Secret::new(random.random()),
            _ => Secret::new(known),
        };
        match random.random_range(0..3) {
            0 => Command::Close { session, secret },
            1 => Command::Adopt { session, secret },
            _ => Command::Evict(Evict {
                session,
                reason: "r".repeat(random.random_range(0..200)),
                operator: "local".to_owned(),
            }),
        }
    }

    fn keep_alive(&self, random: &mut StdRng) -> pb::call::Body {
        let stolen = self.known.stolen.iter();
        let sessions = stolen.map(|stolen| pb::keep_alive::Proof {
            session: stolen.handle.session,
            secret_high: random.random(),
            secret_low: random.random(),
        });
        let sessions = sessions.collect();
        let acknowledged = self
            .known
            .stolen
            .iter()
            .map(|stolen| pb::keep_alive::Acknowledged {
                session: stolen.handle.session,
                token: 1,
            });
        pb::call::Body::KeepAlive(pb::KeepAlive {
            sessions,
            acknowledged: acknowledged.collect(),
            caller: None,
        })
    }
}

fn called(principal: Principal, command: Command) -> Command {
    let (token, node) = (None, 1);
    let caller = Caller {
        principal,
        token,
        node,
    };
    Command::Called(Box::new(Called { caller, command }))
}

/// A change of the members that its caller, who has proven nothing, may not make.
fn change(random: &mut StdRng) -> pb::call::Body {
    use pb::change_members::{Change, Promote};
    let node_id = random.random_range(0..70);
    let change = match random.random_range(0..4) {
        0 => Change::Remove(node_id),
        1 => Change::Promote(Promote {
            node_id,
            replaces: random.random_range(0..4),
        }),
        2 => Change::TransferLeader(node_id),
        _ => Change::Add(pb::Member {
            node_id,
            name: "n".repeat(random.random_range(0..300)),
            peer_address: "127.0.0.1:1".to_owned(),
            client_address: "127.0.0.1:1".to_owned(),
            incarnation: vec![7; 16].into(),
        }),
    };
    pb::call::Body::ChangeMembers(pb::ChangeMembers {
        change: Some(change),
        force: random.random(),
        caller: None,
        own: false,
    })
}

fn word(came: &pb::answer::Body) -> &'static str {
    use pb::failure::Kind;
    match came {
        pb::answer::Body::Applied(_) => "logged",
        pb::answer::Body::KeptAlive(_) => "keep-alive answered",
        pb::answer::Body::ReadIndex(_) => "index read",
        pb::answer::Body::MembersChanged(_) => "members answered",
        pb::answer::Body::Failure(failure) => match failure.kind() {
            Kind::Refused => "refused",
            Kind::NotDone => "not done",
            Kind::Unknown => "unknown",
            Kind::Fault => "fault",
            Kind::Unspecified => "unspecified",
        },
    }
}

fn judge(asked: &pb::call::Body, due: Due, came: &pb::answer::Body) -> Result<(), &'static str> {
    use pb::answer::Body;
    match (due, came) {
        (_, Body::Failure(failure)) => match failure.kind() {
            pb::failure::Kind::Fault => Err("a fault"),
            _ => Ok(()),
        },
        (Due::Read, Body::ReadIndex(_)) => Ok(()),
        (Due::Rejected, Body::Applied(applied)) => match decode_outcome(&applied.outcome) {
            // With a bit changed it names a session that there never was.
            Ok(Outcome::Rejected(_) | Outcome::Closed { cause: None }) => Ok(()),
            _ => Err("done"),
        },
        (Due::NotKept, Body::KeptAlive(kept)) => {
            let pb::call::Body::KeepAlive(asked) = asked else {
                return Err("not asked");
            };
            let ended = |session| kept.ended.iter().any(|ended| ended.session == session);
            let all = asked.sessions.iter().map(|proof| proof.session);
            let mut renewed =
                all.filter(|&session| !ended(session) && !kept.untold.contains(&session));
            match renewed.next() {
                None => Ok(()),
                Some(_) => Err("a session was renewed without its secret"),
            }
        }
        (Due::Unchanged, Body::MembersChanged(changed)) if !changed.refused.is_empty() => Ok(()),
        _ => Err("not refused"),
    }
}
