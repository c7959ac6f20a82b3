//! A client's end of its streams: the way from the client crate into the simulated network, and what
//! is written down of everything that goes over it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use ringfence_check::history::{Invoked, Op, Outcome, Returned};
use ringfence_client::sim::{Incoming, Network, Outgoing};
use ringfence_proto::v1::{self, client_frame, server_frame};
use ringfence_services::{AnswerObserver, Context, Identified, serve};
use tokio::sync::mpsc;
use tonic::Status;

use super::words;
use crate::callers::Caller;
use crate::lock::lock;
use crate::machine::Machine;
use crate::net::{Connection, Inlet, Outlet, Side};
use crate::node;
use crate::observe::{Kept, Observation, Recorder};
use crate::world::World;

/// How long a node may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The way of one client machine to the nodes.
pub(super) struct Streams {
    world: World,
    machine: Machine,
    client: u32,
    caller: Caller,
    recorder: Recorder,
    open: Arc<Mutex<Vec<Weak<Connection>>>>,
}

impl Streams {
    pub(super) fn new(
        world: &World,
        machine: &Machine,
        (client, caller): (u32, &Caller),
        recorder: &Recorder,
        open: &Arc<Mutex<Vec<Weak<Connection>>>>,
    ) -> Self {
        Self {
            open: Arc::clone(open),
            world: world.clone(),
            machine: machine.clone(),
            client,
            caller: caller.clone(),
            recorder: recorder.clone(),
        }
    }
}

impl Network for Streams {
    fn connect(
        &self,
        address: &str,
        outgoing: Outgoing,
    ) -> BoxFuture<'static, Result<Incoming, String>> {
        let (world, machine) = (self.world.clone(), self.machine.clone());
        let (client, caller, recorder) = (self.client, self.caller.clone(), self.recorder.clone());
        let known = Arc::clone(&self.open);
        let address = address.to_owned();
        Box::pin(async move {
            let nodes = world.nodes();
            let here = |index| node::client_address(index).to_string() == address;
            let node = nodes.iter().find(|node| here(node.index()));
            let node = node.ok_or_else(|| format!("no node is at {address}"))?;
            let services = node.services();
            let connecting = world.net().connect(&machine, node.machine(), CONNECT_MAX);
            let connection = connecting.await.map_err(|broken| broken.0)?;
            let services = services.ok_or_else(|| format!("{address} refuses the connection"))?;
            let handle = node.handle();
            let handle = handle.ok_or_else(|| format!("{address} refuses the connection"))?;
            let who = match &caller.credential {
                Some(credential) => node.machine().visit(|| credential.identify(&handle)),
                None => Ok(None),
            };
            let who = who.map_err(|refusal| refusal.message)?;
            lock(&known).retain(|connection| connection.strong_count() > 0);
            lock(&known).push(Arc::downgrade(&connection));
            let tries = Tries::new(client, &caller, node.index(), &recorder);
            Ok(open(&connection, (services, who), outgoing, tries))
        })
    }
}

fn open(
    connection: &Arc<Connection>,
    services: (Context, Option<Identified>),
    mut outgoing: Outgoing,
    tries: Tries,
) -> Incoming {
    let (to_node, at_node) = connection.pipe::<v1::ClientMessage>(Side::Caller);
    let (to_client, mut at_client) = connection.pipe(Side::Callee);
    let own = Arc::clone(connection);
    let serving = served(services, own, at_node, to_client, tries.clone());
    let _detached = connection.spawn(Side::Callee, serving);
    let (tell, incoming) = mpsc::unbounded_channel();
    let asking = tries.clone();
    let _detached = connection.spawn(Side::Caller, async move {
        while let Some(message) = outgoing.next().await {
            asking.asked(&message);
            if to_node.send(message).await.is_err() {
                return;
            }
        }
    });
    let _detached = connection.spawn(Side::Caller, async move {
        loop {
            let message = match at_client.recv().await {
                Ok(Some(message)) => message.map_err(|status: Status| status.to_string()),
                Ok(None) => break,
                Err(broken) => Err(broken.0),
            };
            if let Ok(message) = &message {
                tries.answered(message);
            }
            let over = message.is_err();
            if tell.send(message).is_err() || over {
                break;
            }
        }
        tries.abandoned();
    });
    incoming
}

/// A node's end of a stream, served as the binary serves one of gRPC. To be run in the node's process.
async fn served(
    (services, who): (Context, Option<Identified>),
    connection: Arc<Connection>,
    at_node: Outlet<v1::ClientMessage>,
    to_client: Inlet<Result<v1::ServerMessage, Status>>,
    tries: Tries,
) {
    let received = tries.clone();
    let incoming = stream::unfold(Some(at_node), move |at_node| {
        let received = received.clone();
        async move {
            let mut at_node = at_node?;
            match at_node.recv().await {
                Ok(Some(message)) => {
                    received.received(&message);
                    Some((Ok(message), Some(at_node)))
                }
                Ok(None) => None,
                Err(broken) => Some((Err(Status::unavailable(broken.0)), None)),
            }
        }
    });
    let account = services.new_account();
    let closing = account.closing();
    let observer: Arc<dyn AnswerObserver> = Arc::new(tries);
    let answer = async {
        match serve(
            &services,
            Arc::clone(&account),
            who,
            incoming.boxed(),
            Some(observer),
        ) {
            Ok(mut outgoing) => {
                while let Some(message) = outgoing.next().await {
                    if to_client.send(message).await.is_err() {
                        return;
                    }
                }
            }
            Err(refusal) => to_client.push(Err(refusal.into())),
        }
    };
    tokio::select! {
        biased;
        // The client reads nothing.
        _ = closing => connection.close(Side::Callee),
        () = answer => {}
    }
}

/// The tries of one stream, by the numbers of their frames. Clones are the same.
#[derive(Clone)]
struct Tries {
    client: u32,
    caller: Caller,
    node: usize,
    recorder: Recorder,
    open: Arc<Mutex<BTreeMap<u64, Try>>>,
}

struct Try {
    id: u64,
    what: What,
    /// The entry that answered it.
    index: Option<u64>,
}

enum What {
    Request(Op),
    KeepAlive(Vec<u64>),
    /// What is asked in the name of another's session. Its client saw nothing of it.
    Stolen,
}

impl Tries {
    fn new(client: u32, caller: &Caller, node: usize, recorder: &Recorder) -> Self {
        Self {
            client,
            caller: caller.clone(),
            node,
            recorder: recorder.clone(),
            open: Arc::default(),
        }
    }

    fn asked(&self, message: &v1::ClientMessage) {
        if let Some(loot) = &self.caller.loot {
            loot.overhear(self.recorder.now(), message);
        }
        for frame in &message.frames {
            let Some(body) = &frame.body else { continue };
            let id = self.recorder.next_try();
            let keeps_alive = matches!(body, client_frame::Body::KeepAlive(_));
            if self.caller.hostile && !keeps_alive {
                let (what, index) = (What::Stolen, None);
                lock(&self.open).insert(frame.id, Try { id, what, index });
                continue;
            }
            let (what, seen) = self.try_of(id, body);
            let index = None;
            lock(&self.open).insert(frame.id, Try { id, what, index });
            self.recorder.see(seen);
        }
    }

    fn try_of(&self, id: u64, body: &client_frame::Body) -> (What, Observation) {
        let client = self.client;
        if let client_frame::Body::KeepAlive(request) = body {
            let number = |handle: &v1::SessionHandle| handle.session;
            let sessions: Vec<u64> = request.sessions.iter().map(number).collect();
            let seen = Observation::KeepAliveAsked {
                id,
                client,
                sessions: sessions.clone(),
            };
            return (What::KeepAlive(sessions), seen);
        }
        let words::Asked {
            session,
            request,
            op,
        } = words::asked(body);
        let seen = Observation::Asked(Invoked {
            id,
            t: self.recorder.nanos(),
            client,
            session,
            request,
            op: op.clone(),
        });
        (What::Request(op), seen)
    }

    /// A node has taken the message in.
    fn received(&self, message: &v1::ClientMessage) {
        for frame in &message.frames {
            let id = lock(&self.open).get(&frame.id).map(|open| open.id);
            if let Some(id) = id {
                let node = self.node;
                self.recorder.see(Observation::Received { id, node });
            }
        }
    }

    fn answered(&self, message: &v1::ServerMessage) {
        for frame in &message.frames {
            let Some(open) = lock(&self.open).remove(&frame.id) else {
                continue;
            };
            let Some(body) = &frame.body else { continue };
            match open.what {
                What::Request(op) => self.recorder.see(Observation::Answered(Returned {
                    id: open.id,
                    t: self.recorder.nanos(),
                    outcome: words::answered(&op, body),
                    index: open.index,
                })),
                What::KeepAlive(sessions) => self.kept(open.id, &sessions, body),
                What::Stolen => self.stolen(body),
            }
        }
    }

    /// A thief was answered. That a session has ended is no secret to who knows its own.
    fn stolen(&self, body: &server_frame::Body) {
        use server_frame::Body;
        let refused = matches!(body, Body::Refusal(_));
        if !refused && !matches!(body, Body::Close(_)) {
            self.recorder.see(Observation::ThiefServed {
                client: self.client,
                answer: format!("{body:?}"),
            });
        }
    }

    fn kept(&self, id: u64, sessions: &[u64], body: &server_frame::Body) {
        let mut refused = 0;
        for &session in sessions {
            let what = match body {
                server_frame::Body::KeepAlive(reply) => {
                    let mut ended = reply.ended.iter();
                    if let Some(ended) = ended.find(|ended| ended.session == session) {
                        kept_not(ended.reason())
                    } else if reply.untold.contains(&session) {
                        Kept::Untold
                    } else {
                        Kept::Alive
                    }
                }
                _ => Kept::NotDone,
            };
            refused += usize::from(what == Kept::Refused);
            self.recorder.see(Observation::KeptAlive {
                id,
                client: self.client,
                session,
                what,
            });
        }
        if self.caller.hostile && (1..sessions.len()).contains(&refused) {
            self.recorder.see(Observation::Case("batch with a thief"));
        }
    }

    /// The stream is gone, and with it everything that was not answered.
    fn abandoned(&self) {
        let open = std::mem::take(&mut *lock(&self.open));
        for open in open.into_values() {
            if matches!(open.what, What::KeepAlive(_)) {
                self.recorder.see(Observation::Abandoned { id: open.id });
            }
            if matches!(open.what, What::Request(_)) {
                let error = "the stream is gone".to_owned();
                self.recorder.see(Observation::Answered(Returned {
                    id: open.id,
                    t: self.recorder.nanos(),
                    outcome: Outcome::Unknown { error },
                    index: None,
                }));
            }
        }
    }
}

/// What it means that a session is listed among those that have ended: one of another principal, or
/// of a banned one, lives on.
fn kept_not(reason: v1::Reason) -> Kept {
    use v1::Reason;
    match reason {
        Reason::PermissionDenied | Reason::Unauthenticated | Reason::WrongSecret => Kept::Refused,
        _ => Kept::Ended,
    }
}

impl AnswerObserver for Tries {
    fn answered_by(&self, frame: u64, index: u64) {
        if let Some(open) = lock(&self.open).get_mut(&frame) {
            open.index = Some(index);
        }
    }
}
