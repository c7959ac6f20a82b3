//! The server's side of a script: nodes that note each request, and answer as the script says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use ringfence_client::{BootClock, Clock, Moment};
use ringfence_proto::v1::connection_server::{Connection, ConnectionServer};
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::{
    ClientFrame, ClientMessage, GoingAway, Greeting, ServerFrame, ServerMessage,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Status, Streaming};

use crate::frames;
use crate::wire::{Mode, Wire};

type Out = mpsc::UnboundedSender<Result<ServerMessage, Status>>;

/// A request that a node received.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) node: String,
    pub(crate) kind: &'static str,
    pub(crate) fields: Value,
    pub(crate) at: Moment,
    /// The script has seen it, or it was answered without the script.
    pub(crate) seen: bool,
    frame: u64,
    out: Out,
}

/// What keep-alives are answered with.
#[derive(Clone)]
pub(crate) enum KeepAlives {
    Nothing,
    Reply(Value),
    Refusal(Value),
}

struct State {
    received: Vec<Received>,
    /// Kinds that are answered without the script.
    automatic: BTreeSet<String>,
    keep_alives: KeepAlives,
    last_session: u64,
    last_token: u64,
    nodes: Vec<NodeState>,
}

struct NodeState {
    cluster: u8,
    leader: String,
    /// Whole streams are refused with this.
    refusing: Option<Value>,
    streams: Vec<Out>,
}

struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

struct Node {
    name: String,
    wire: Wire,
    serving: AbortHandle,
}

/// All nodes of a script.
pub(crate) struct Stage {
    shared: Arc<Shared>,
    nodes: Vec<Node>,
}

struct Service {
    shared: Arc<Shared>,
    index: usize,
}

impl Stage {
    pub(crate) async fn new(count: usize) -> std::io::Result<Self> {
        let kinds = ["open", "close", "keep_alive"];
        let state = State {
            received: Vec::new(),
            automatic: kinds.map(str::to_owned).into(),
            keep_alives: KeepAlives::Reply(json!({})),
            last_session: 0,
            last_token: 100,
            nodes: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        });
        let mut nodes = Vec::new();
        for index in 0..count {
            shared.lock().nodes.push(NodeState {
                cluster: 7,
                leader: String::new(),
                refusing: None,
                streams: Vec::new(),
            });
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let wire = Wire::to(listener.local_addr()?.to_string()).await?;
            let service = Service {
                shared: Arc::clone(&shared),
                index,
            };
            let serving = tokio::spawn(async move {
                tonic::transport::Server::builder()
                    .add_service(ConnectionServer::new(service))
                    .serve_with_incoming(TcpListenerStream::new(listener))
                    .await
                    .ok();
            });
            nodes.push(Node {
                name: format!("n{}", index + 1),
                wire,
                serving: serving.abort_handle(),
            });
        }
        Ok(Self { shared, nodes })
    }

    /// The names of the nodes, and their addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        let nodes = self.nodes.iter();
        nodes.map(|node| (node.name.as_str(), node.wire.address()))
    }

    fn index(&self, name: &str) -> Result<usize, String> {
        let found = self.nodes.iter().position(|node| node.name == name);
        found.ok_or_else(|| format!("no node {name:?}"))
    }

    /// The nodes that a script names: one, several in an array, or all by leaving them out.
    fn indices(&self, named: &Value) -> Result<Vec<usize>, String> {
        match named {
            Value::Null => Ok((0..self.nodes.len()).collect()),
            Value::String(name) => Ok(vec![self.index(name)?]),
            Value::Array(names) => {
                let names = names.iter().map(|name| name.as_str().unwrap_or_default());
                names.map(|name| self.index(name)).collect()
            }
            other => Err(format!("{other} names no node")),
        }
    }

    pub(crate) fn set_wires(&self, named: &Value, mode: Mode) -> Result<(), String> {
        for index in self.indices(named)? {
            self.nodes[index].wire.set(mode);
        }
        Ok(())
    }

    pub(crate) fn cut(&self, named: &Value) -> Result<(), String> {
        for index in self.indices(named)? {
            self.nodes[index].wire.cut();
        }
        Ok(())
    }

    /// How streams that are opened from now on are greeted.
    pub(crate) fn greet(&self, step: &Value) -> Result<(), String> {
        let indices = self.indices(&step["node"])?;
        let mut state = self.shared.lock();
        for index in indices {
            let node = &mut state.nodes[index];
            if let Some(cluster) = step["cluster"].as_u64() {
                node.cluster = u8::try_from(cluster).map_err(|_| "cluster: 0 to 255")?;
            }
            if let Some(leader) = step["leader"].as_str() {
                node.leader = leader.to_owned();
            }
        }
        Ok(())
    }

    pub(crate) fn refuse_streams(&self, named: &Value, refusal: &Value) -> Result<(), String> {
        let indices = self.indices(named)?;
        let mut state = self.shared.lock();
        for index in indices {
            state.nodes[index].refusing = Some(refusal.clone()).filter(|told| !told.is_null());
        }
        Ok(())
    }

    pub(crate) fn going_away(&self, named: &Value, leader: &str) -> Result<(), String> {
        let indices = self.indices(named)?;
        let state = self.shared.lock();
        let notice = Reply::GoingAway(GoingAway {
            leader_client_address: leader.to_owned(),
        });
        for out in indices
            .iter()
            .flat_map(|&index| &state.nodes[index].streams)
        {
            send(out, 0, notice.clone());
        }
        Ok(())
    }

    pub(crate) fn set_automatic(&self, kind: &str, automatic: bool) {
        let mut state = self.shared.lock();
        if automatic {
            state.automatic.insert(kind.to_owned());
        } else {
            state.automatic.remove(kind);
        }
    }

    pub(crate) fn set_keep_alives(&self, keep_alives: KeepAlives) {
        self.shared.lock().keep_alives = keep_alives;
    }

    /// From now on nodes answer everything by themselves, so that what is left of the clients ends.
    pub(crate) fn answer_everything(&self) -> Result<(), String> {
        self.set_wires(&Value::Null, Mode::Pass)?;
        let mut state = self.shared.lock();
        for node in &mut state.nodes {
            node.refusing = None;
        }
        state.keep_alives = KeepAlives::Reply(json!({}));
        let kinds = [
            "open",
            "close",
            "keep_alive",
            "acquire",
            "release",
            "cancel",
            "transfer",
        ];
        state.automatic.extend(kinds.map(str::to_owned));
        for at in 0..state.received.len() {
            if !state.received[at].seen {
                state.answer_automatically(at);
            }
        }
        Ok(())
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.lock().received.clone()
    }

    /// Marks that the script has seen a request.
    pub(crate) fn see(&self, at: usize) {
        self.shared.lock().received[at].seen = true;
    }

    /// Notified at each request.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    pub(crate) fn answer(&self, at: usize, kind: &str, told: &Value) -> Result<(), String> {
        let state = self.shared.lock();
        let one = &state.received[at];
        let body = frames::reply(kind, told, &one.fields)?;
        send(&one.out, one.frame, body);
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.serving.abort();
            node.wire.set(Mode::Refuse);
        }
    }
}

fn send(out: &Out, id: u64, body: Reply) {
    let body = Some(body);
    let frames = vec![ServerFrame { id, body }];
    // A stream that is gone brings no answer, which is what the script wants to see.
    out.send(Ok(ServerMessage { frames })).ok();
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn receive(&self, index: usize, frame: ClientFrame, out: &Out) {
        let Some(ask) = &frame.body else {
            return;
        };
        let (kind, mut fields) = frames::of_request(ask);
        let node = format!("n{}", index + 1);
        fields["node"] = node.as_str().into();
        let mut state = self.lock();
        state.received.push(Received {
            node,
            kind,
            fields,
            at: BootClock.now(),
            seen: false,
            frame: frame.id,
            out: out.clone(),
        });
        let at = state.received.len() - 1;
        if state.automatic.contains(kind) {
            state.answer_automatically(at);
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl State {
    fn answer_automatically(&mut self, at: usize) {
        let (kind, name) = {
            let one = &self.received[at];
            (one.kind, one.fields["name"].clone())
        };
        let (kind, told) = match kind {
            "open" => {
                self.last_session += 1;
                ("open", json!({"session": self.last_session}))
            }
            "keep_alive" => match self.keep_alives.clone() {
                KeepAlives::Nothing => return,
                KeepAlives::Reply(told) => ("keep_alive", told),
                KeepAlives::Refusal(told) => ("refusal", told),
            },
            "acquire" => {
                self.last_token += 1;
                ("grant", json!({"token": self.last_token}))
            }
            "cancel" => ("cancel", json!({"result": "VOIDED"})),
            "transfer" => ("refusal", json!({"reason": "NOT_WAITING"})),
            "check" => ("check", json!({"verdict": "CURRENT", "name": name})),
            other => (other, json!({})),
        };
        let one = &self.received[at];
        match frames::reply(kind, &told, &one.fields) {
            Ok(body) => send(&one.out, one.frame, body),
            Err(why) => panic!("an automatic answer: {why}"),
        }
    }
}

#[tonic::async_trait]
impl Connection for Service {
    type StreamStream = UnboundedReceiverStream<Result<ServerMessage, Status>>;

    async fn stream(
        &self,
        request: tonic::Request<Streaming<ClientMessage>>,
    ) -> Result<tonic::Response<Self::StreamStream>, Status> {
        let (out, replies) = mpsc::unbounded_channel();
        {
            let mut state = self.shared.lock();
            let node = &mut state.nodes[self.index];
            if let Some(told) = &node.refusing {
                let refusal = frames::refusal(told).map_err(Status::internal)?;
                let refusal = ringfence_proto::Refusal::from_wire(refusal);
                return Err(refusal.map_or_else(|| Status::internal("no refusal"), Status::from));
            }
            let greeting = Greeting {
                cluster_id: vec![node.cluster; 16].into(),
                node_id: self.index as u64 + 1,
                cluster_time_ms: 1_000,
                leader_id: 1,
                leader_client_address: node.leader.clone(),
                term: 1,
            };
            send(&out, 0, Reply::Greeting(greeting));
            node.streams.push(out.clone());
        }
        let mut inbound = request.into_inner();
        let (shared, index) = (Arc::clone(&self.shared), self.index);
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                for frame in message.frames {
                    shared.receive(index, frame, &out);
                }
            }
        });
        Ok(tonic::Response::new(UnboundedReceiverStream::new(replies)))
    }
}
