//! The nodes of the fake cluster, and the scripts that make them misbehave.

mod service;

use std::sync::{Arc, Mutex, MutexGuard};

use ringfence_proto::Refusal;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::connection_server::ConnectionServer;
use ringfence_proto::v1::leases_server::LeasesServer;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::sessions_server::SessionsServer;
use ringfence_proto::v1::{
    self, CheckResponse, ClientFrame, GoingAway, Reason, ServerFrame, ServerMessage,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;

use self::service::Service;
use super::Model;

/// What a node does with a request instead of simply answering it.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Refuses it without doing it.
    Refuse(Refusal),
    /// Does it, and breaks the stream instead of replying.
    BreakAfter,
    /// Breaks the stream without doing it.
    BreakBefore,
    /// Does it, and never replies.
    Swallow,
    /// Does it, and keeps the reply until [`Node::let_go`].
    HoldReply,
    /// Does it only at [`Node::let_go`].
    HoldRequest,
    /// Replies with something that does not fit.
    Garbage,
}

struct Rule {
    matches: fn(&Ask) -> bool,
    act: Act,
    left: usize,
}

/// The state that all nodes serve.
#[derive(Clone)]
pub(crate) struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    model: Mutex<Model>,
    changed: watch::Sender<()>,
    leader: Mutex<String>,
    /// Every request that any node received, in order.
    received: Mutex<Vec<(String, Ask)>>,
}

/// One node; it ends when it is dropped, connections and all.
pub(crate) struct Node {
    inner: Arc<Inner>,
    runtime: Option<Runtime>,
}

struct Inner {
    address: String,
    cluster_id: Vec<u8>,
    cluster: Cluster,
    rules: Mutex<Vec<Rule>>,
    held: Mutex<Vec<(Out, Held)>>,
    streams: Mutex<Vec<Out>>,
    watching: Mutex<Option<Watching>>,
    /// The prefix of each watch that was asked for.
    watches: Mutex<Vec<String>>,
    watchers: Mutex<Vec<mpsc::Sender<Result<v1::WatchResponse, Status>>>>,
}

/// What a watch receives at once; it tells nothing more then, and goes on.
pub(crate) type Watching = fn(&v1::WatchRequest) -> Vec<v1::WatchResponse>;

enum Held {
    Reply(ServerFrame),
    Request(ClientFrame),
}

type Out = mpsc::UnboundedSender<Result<ServerMessage, Status>>;

pub(crate) fn is_acquire(ask: &Ask) -> bool {
    matches!(ask, Ask::Acquire(_))
}

pub(crate) fn is_open(ask: &Ask) -> bool {
    matches!(ask, Ask::Open(_))
}

pub(crate) fn is_release(ask: &Ask) -> bool {
    matches!(ask, Ask::Release(_))
}

pub(crate) fn is_keep_alive(ask: &Ask) -> bool {
    matches!(ask, Ask::KeepAlive(_))
}

/// "Not done, try again", naming a leader if there is one.
pub(crate) fn unavailable(leader: Option<&str>) -> Act {
    let refusal = Refusal::new(Reason::Unavailable, "no quorum");
    Act::Refuse(match leader {
        Some(leader) => refusal.with("leader", leader),
        None => refusal,
    })
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                model: Mutex::default(),
                changed: watch::Sender::new(()),
                leader: Mutex::default(),
                received: Mutex::default(),
            }),
        }
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.shared.model.lock().unwrap()
    }

    /// Changes the state behind the client's back.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Model)) {
        change(&mut self.model());
        self.shared.changed.send_replace(());
    }

    /// All nodes name this leader from now on.
    pub(crate) fn set_leader(&self, address: &str) {
        *self.shared.leader.lock().unwrap() = address.to_owned();
    }

    /// How many requests of this kind were received. One that came again as it was, since its stream broke,
    /// counts once: a machine that stands still for some seconds breaks streams.
    pub(crate) fn distinct(&self, matches: fn(&Ask) -> bool) -> usize {
        let mut distinct: Vec<Ask> = Vec::new();
        for (_, ask) in self.received(matches) {
            if !distinct.contains(&ask) {
                distinct.push(ask);
            }
        }
        distinct.len()
    }

    /// How many times a request of this kind was received, repeats included.
    pub(crate) fn count(&self, matches: fn(&Ask) -> bool) -> usize {
        self.received(matches).len()
    }

    /// The requests of this kind that were received, with the addresses of their nodes.
    pub(crate) fn received(&self, matches: fn(&Ask) -> bool) -> Vec<(String, Ask)> {
        let received = self.shared.received.lock().unwrap();
        received
            .iter()
            .filter(|(_, ask)| matches(ask))
            .cloned()
            .collect()
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_at("127.0.0.1:0", 7).await
    }

    /// A node of another cluster, at the address of one that is gone, if wished.
    pub(crate) async fn node_at(&self, address: &str, cluster_id: u8) -> Node {
        // The node that had the address before may not be quite gone yet.
        let binding = async {
            loop {
                match std::net::TcpListener::bind(address) {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
                }
            }
        };
        let listener = super::within("a free port", binding).await;
        listener.set_nonblocking(true).unwrap();
        let inner = Arc::new(Inner {
            address: listener.local_addr().unwrap().to_string(),
            cluster_id: vec![cluster_id; 16],
            cluster: self.clone(),
            rules: Mutex::default(),
            held: Mutex::default(),
            streams: Mutex::default(),
            watching: Mutex::default(),
            watches: Mutex::default(),
            watchers: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let service = Arc::clone(&inner);
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let served = tonic::transport::Server::builder()
                // As the server has it.
                .max_concurrent_streams(1_024)
                .add_service(LeasesServer::new(Service(Arc::clone(&service))))
                .add_service(ConnectionServer::new(Service(Arc::clone(&service))))
                .add_service(SessionsServer::new(Service(service)))
                .serve_with_incoming(incoming)
                .await;
            served.unwrap();
        });
        Node {
            inner,
            runtime: Some(runtime),
        }
    }
}

impl Node {
    pub(crate) fn address(&self) -> String {
        self.inner.address.clone()
    }

    /// Treats the next `times` requests of this kind so.
    pub(crate) fn script(&self, matches: fn(&Ask) -> bool, act: Act, times: usize) {
        self.inner.rules.lock().unwrap().push(Rule {
            matches,
            act,
            left: times,
        });
    }

    /// Serves watches from now on.
    pub(crate) fn tell_watches(&self, watching: Watching) {
        *self.inner.watching.lock().unwrap() = Some(watching);
    }

    /// Tells all watches something.
    pub(crate) fn tell(&self, message: &v1::WatchResponse) {
        let mut watchers = self.inner.watchers.lock().unwrap();
        watchers.retain(|out| out.try_send(Ok(message.clone())).is_ok());
    }

    /// The prefix of each watch that was asked for.
    pub(crate) fn watches(&self) -> Vec<String> {
        self.inner.watches.lock().unwrap().clone()
    }

    /// Forgets all scripts.
    pub(crate) fn behave(&self) {
        self.inner.rules.lock().unwrap().clear();
    }

    /// How many replies or requests are held.
    pub(crate) fn holds(&self) -> usize {
        self.inner.held.lock().unwrap().len()
    }

    /// Lets what is held go, newest first if wished.
    pub(crate) fn let_go(&self, newest_first: bool) {
        let mut held = std::mem::take(&mut *self.inner.held.lock().unwrap());
        if newest_first {
            held.reverse();
        }
        for (out, held) in held {
            match held {
                Held::Reply(frame) => send(&out, frame),
                Held::Request(frame) => self.inner.answer(frame, &out),
            }
        }
    }

    /// Says goodbye on every stream.
    pub(crate) fn going_away(&self, leader: &str) {
        let notice = GoingAway {
            leader_client_address: leader.into(),
        };
        for out in &*self.inner.streams.lock().unwrap() {
            send(
                out,
                ServerFrame {
                    id: 0,
                    body: Some(Reply::GoingAway(notice.clone())),
                },
            );
        }
    }

    /// Breaks every stream, as a lost connection does.
    pub(crate) fn break_streams(&self) {
        for out in self.inner.streams.lock().unwrap().drain(..) {
            out.send(Err(Status::unavailable("broken"))).ok();
        }
    }

    /// How many streams were opened and not broken since.
    pub(crate) fn streams(&self) -> usize {
        self.inner
            .streams
            .lock()
            .unwrap()
            .iter()
            .filter(|out| !out.is_closed())
            .count()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn send(out: &Out, frame: ServerFrame) {
    out.send(Ok(ServerMessage {
        frames: vec![frame],
    }))
    .ok();
}

impl Inner {
    fn take_act(&self, ask: &Ask) -> Option<Act> {
        let mut rules = self.rules.lock().unwrap();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.left > 0 && (rule.matches)(ask))?;
        rule.left -= 1;
        Some(rule.act.clone())
    }

    /// Returns whether the stream goes on.
    fn receive(self: &Arc<Self>, frame: ClientFrame, out: &Out) -> bool {
        let ask = frame.body.clone().unwrap();
        let act = self.take_act(&ask);
        let received = &self.cluster.shared.received;
        received.lock().unwrap().push((self.address.clone(), ask));
        match act {
            None => self.answer(frame, out),
            Some(Act::Refuse(refusal)) => {
                send(
                    out,
                    ServerFrame {
                        id: frame.id,
                        body: Some(Reply::Refusal(refusal.into())),
                    },
                );
            }
            Some(Act::BreakBefore) => return false,
            Some(Act::BreakAfter) => {
                self.apply(&frame);
                return false;
            }
            Some(Act::Swallow) => drop(self.apply(&frame)),
            Some(Act::HoldReply) => {
                let body = self.apply(&frame);
                let held = Held::Reply(ServerFrame { id: frame.id, body });
                self.held.lock().unwrap().push((out.clone(), held));
            }
            Some(Act::HoldRequest) => {
                self.held
                    .lock()
                    .unwrap()
                    .push((out.clone(), Held::Request(frame)));
            }
            Some(Act::Garbage) => {
                let body = Some(Reply::Check(CheckResponse::default()));
                send(out, ServerFrame { id: frame.id, body });
            }
        }
        true
    }

    fn answer(self: &Arc<Self>, frame: ClientFrame, out: &Out) {
        if let Some(body) = self.apply(&frame) {
            return send(
                out,
                ServerFrame {
                    id: frame.id,
                    body: Some(body),
                },
            );
        }
        let Some(Ask::Acquire(ask)) = frame.body else {
            return;
        };
        let key = (ask.session.unwrap().session, ask.number);
        let (cluster, out) = (self.cluster.clone(), out.clone());
        let mut changed = cluster.shared.changed.subscribe();
        tokio::spawn(async move {
            loop {
                let settled = cluster.model().settled.get(&key).cloned();
                if let Some(body) = settled {
                    return send(
                        &out,
                        ServerFrame {
                            id: frame.id,
                            body: Some(body),
                        },
                    );
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = out.closed() => return,
                }
            }
        });
    }

    /// Carries the request out; no reply: it waits.
    fn apply(&self, frame: &ClientFrame) -> Option<Reply> {
        let mut model = self.cluster.model();
        let reply = match frame.body.as_ref().unwrap() {
            Ask::Open(ask) => Some(model.open(ask)),
            Ask::KeepAlive(ask) => Some(model.keep_alive(ask)),
            Ask::Close(ask) => Some(model.close(ask.session.as_ref())),
            Ask::Acquire(ask) => model.acquire(ask),
            Ask::Cancel(ask) => Some(model.cancel(ask)),
            Ask::Release(ask) => Some(model.release(ask)),
            Ask::Transfer(ask) => Some(model.transfer(ask)),
            Ask::Get(ask) => Some(Reply::Get(model.get(&ask.name))),
            Ask::Check(ask) => Some(Reply::Check(model.check(ask))),
        };
        drop(model);
        self.cluster.shared.changed.send_replace(());
        reply
    }
}
