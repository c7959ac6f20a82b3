//! A node's end of a client's stream: decode, propose, encode, as the server's own service does, but
//! without gRPC.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::{Acquired, ClusterTime, Command, Opened, Outcome, RequestNumber, SessionId};
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{
    Applied, KeepAlive, KeepAliveSource, Node, ProposeError, WaitDone, WaiterKey,
};

use super::stream::Tries;
use crate::lock::lock;
use crate::net::{Connection, Inlet, Outlet, Side};

/// When to try again if nobody knows better.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// One stream, as the node has it.
#[derive(Clone)]
struct Stream {
    node: Node,
    connection: Arc<Connection>,
    source: KeepAliveSource,
    out: Arc<Inlet<v1::ServerMessage>>,
    tries: Tries,
    /// Waits that this stream follows. They end with it, the places in the queues do not.
    waits: Arc<Mutex<Vec<WaiterKey>>>,
}

/// Serves a stream until its client ends it or it breaks. To be run in the node's process.
pub(super) async fn serve(
    node: Node,
    connection: Arc<Connection>,
    mut incoming: Outlet<v1::ClientMessage>,
    out: Inlet<v1::ServerMessage>,
    tries: Tries,
) {
    let Some(greeting) = greeting(&node) else {
        return;
    };
    let stream = Stream {
        node,
        connection,
        source: KeepAliveSource::unique(),
        out: Arc::new(out),
        tries,
        waits: Arc::default(),
    };
    let _forgotten = Forgotten(Arc::clone(&stream.waits));
    stream.tell(0, Body::Greeting(greeting));
    while let Ok(Some(message)) = incoming.recv().await {
        let mut reads = Vec::new();
        for v1::ClientFrame { id, body } in message.frames {
            stream.tries.received(id);
            match body {
                Some(Ask::Get(_) | Ask::Check(_)) => reads.push((id, body)),
                Some(body) => stream.take(id, body),
                None => {}
            }
        }
        if !reads.is_empty() {
            let stream = stream.clone();
            let connection = Arc::clone(&stream.connection);
            let reading = async move { stream.read(reads).await };
            let _detached = connection.spawn(Side::Callee, reading);
        }
    }
}

/// Forgets the waits of a stream when it is over, however that comes.
struct Forgotten(Arc<Mutex<Vec<WaiterKey>>>);

impl Drop for Forgotten {
    fn drop(&mut self) {
        // Dropped outside the lock: it may run what was to be told of the wait.
        let waits = std::mem::take(&mut *lock(&self.0));
        drop(waits);
    }
}

fn greeting(node: &Node) -> Option<v1::Greeting> {
    let (cluster, time) = node.read(|machine| (machine.cluster(), machine.time()));
    let status = node.status();
    let leader = status.leader;
    Some(v1::Greeting {
        cluster_id: wire::cluster_id_to_wire(&cluster?),
        node_id: status.node_id.unwrap_or_default(),
        cluster_time_ms: time.0,
        leader_id: leader.as_ref().map_or(0, |leader| leader.node_id),
        leader_client_address: leader
            .map(|leader| leader.client_address)
            .unwrap_or_default(),
        term: status.term,
    })
}

impl Stream {
    fn tell(&self, id: u64, body: Body) {
        let frame = v1::ServerFrame {
            id,
            body: Some(body),
        };
        let frames = vec![frame];
        self.out.push(v1::ServerMessage { frames });
    }

    fn answer(&self, id: u64, index: Option<u64>, answer: Result<Body, Refusal>) {
        self.tries.answered_by(id, index);
        self.tell(
            id,
            answer.unwrap_or_else(|refusal| Body::Refusal(refusal.into())),
        );
    }

    fn take(&self, id: u64, body: Ask) {
        if let Ask::KeepAlive(request) = body {
            return self.keep_alive(id, request);
        }
        if let Ask::Acquire(request) = body {
            let waits = request.wait_ms.is_some();
            return match wire::acquire_from_wire(request) {
                Ok(command) if waits => self.wait(id, command),
                Ok(command) => self.propose(id, command),
                Err(refusal) => self.answer(id, None, Err(refusal)),
            };
        }
        let command = match body {
            Ask::Open(request) => wire::open_from_wire(request).map(Command::Open),
            Ask::Close(request) => wire::close_from_wire(request),
            Ask::Cancel(request) => wire::cancel_from_wire(request).map(Command::Request),
            Ask::Release(request) => wire::release_from_wire(request).map(Command::Request),
            Ask::Transfer(request) => wire::transfer_from_wire(request).map(Command::Request),
            Ask::Acquire(_) | Ask::KeepAlive(_) | Ask::Get(_) | Ask::Check(_) => return,
        };
        match command {
            Ok(command) => self.propose(id, command),
            Err(refusal) => self.answer(id, None, Err(refusal)),
        }
    }

    fn propose(&self, id: u64, command: Command) {
        let stream = self.clone();
        self.node.submit(command, move |applied| {
            let index = applied.as_ref().ok().map(|applied| applied.index);
            let answer = applied
                .map_err(not_proposed)
                .and_then(|applied| answer_of(applied, &stream.node));
            stream.answer(id, index, answer);
        });
    }

    fn keep_alive(&self, id: u64, request: v1::KeepAliveRequest) {
        let number = request.id;
        let (keep_alive, malformed) = match wire::keep_alive_from_wire(request) {
            Ok(wire::KeepAlive {
                sessions,
                acknowledged,
                malformed,
            }) => {
                let keep_alive = KeepAlive {
                    sessions,
                    acknowledged,
                };
                (keep_alive, malformed)
            }
            Err(refusal) => return self.answer(id, None, Err(refusal)),
        };
        let stream = self.clone();
        self.node
            .submit_keep_alive(self.source, keep_alive, move |kept| {
                let answer = kept.map_err(not_proposed).map(|kept| {
                    let (ended, lost, untold) = (&kept.ended, &kept.lost, &kept.untold);
                    let answer = wire::kept_alive_to_wire(number, kept.time, ended, lost, untold);
                    wire::with_malformed(answer, &malformed)
                });
                stream.answer(id, None, answer.map(Body::KeepAlive));
            });
    }

    async fn read(&self, reads: Vec<(u64, Option<Ask>)>) {
        let barrier = self.node.read_barrier().await.map_err(not_read);
        for (id, body) in reads {
            let answer = barrier.clone().and_then(|()| self.look(body));
            let index = match &answer {
                Ok(Body::Get(reply)) => reply.at.as_ref().map(|at| at.index),
                Ok(Body::Check(reply)) => reply.at.as_ref().map(|at| at.index),
                // What is not there is not there at an index as well.
                Err(refusal) if refusal.reason == v1::Reason::NotFound => {
                    Some(self.node.read(|state| state.index()))
                }
                _ => None,
            };
            self.answer(id, index, answer);
        }
    }

    fn look(&self, body: Option<Ask>) -> Result<Body, Refusal> {
        self.node.read(|machine| {
            let at = wire::read_point_to_wire(machine.index(), machine.time(), Duration::ZERO);
            match body {
                Some(Ask::Get(request)) => {
                    let (name, _) = wire::get_from_wire(request)?;
                    let lease = machine.get(&name);
                    let lease = lease.ok_or_else(|| Refusal::not_found(format!("lease {name}")))?;
                    Ok(Body::Get(v1::GetResponse {
                        lease: Some(wire::lease_to_wire(&lease)),
                        at: Some(at),
                    }))
                }
                Some(Ask::Check(request)) => {
                    let (name, token, _) = wire::check_from_wire(request)?;
                    let verdict = machine.check(&name, token);
                    Ok(Body::Check(wire::verdict_to_wire(verdict, at)))
                }
                _ => Err(Refusal::missing("frames.body", "a read")),
            }
        })
    }
}

/// What became of a waiting request, in whichever order that is heard: its entry is applied, its
/// wait is over. It is told behind the entry only.
#[derive(Default)]
struct Fate {
    applied: Option<(u64, ClusterTime)>,
    done: Option<WaitDone>,
    told: bool,
}

impl Stream {
    fn wait(&self, id: u64, command: Command) {
        let Command::Request(request) = &command else {
            return self.propose(id, command);
        };
        let fate = Arc::new(Mutex::new(Fate::default()));
        self.follow(id, (request.session, request.number), &fate);
        let stream = self.clone();
        self.node.submit(command, move |applied| {
            let index = applied.as_ref().ok().map(|applied| applied.index);
            match applied {
                Ok(Applied {
                    outcome: Outcome::Acquired(Acquired::Waiting { .. }),
                    index,
                    time,
                }) => {
                    lock(&fate).applied = Some((index, time));
                    stream.settle(id, &fate);
                }
                other => {
                    lock(&fate).told = true;
                    let answer = other
                        .map_err(not_proposed)
                        .and_then(|applied| answer_of(applied, &stream.node));
                    stream.answer(id, index, answer);
                }
            }
        });
    }

    /// Registered before the entry exists, so that the end of the wait cannot be missed.
    fn follow(&self, id: u64, wait: (SessionId, RequestNumber), fate: &Arc<Mutex<Fate>>) {
        let (stream, fate) = (self.clone(), Arc::clone(fate));
        let settled = Box::new(move |done| {
            lock(&fate).done = Some(done);
            stream.settle(id, &fate);
        });
        let key = self.node.on_settled(wait.0, wait.1, settled);
        lock(&self.waits).push(key);
    }

    fn settle(&self, id: u64, fate: &Mutex<Fate>) {
        let (index, done) = {
            let mut fate = lock(fate);
            let (Some((index, _)), Some(_), false) = (fate.applied, &fate.done, fate.told) else {
                return;
            };
            fate.told = true;
            (index, fate.done.take())
        };
        let time = self.node.read(|state| state.time());
        let answer = match done {
            Some(WaitDone::Settled(acquired)) => acquired_to(&acquired, time),
            _ => Err(Refusal::from_rejection(
                &ringfence_core::Rejection::SessionExpired { cause: None },
            )),
        };
        self.answer(id, Some(index), answer);
    }
}

fn answer_of(applied: Applied, node: &Node) -> Result<Body, Refusal> {
    let Applied { outcome, time, .. } = applied;
    match outcome {
        Outcome::Opened(opened) => opened_to(&opened, time, node),
        Outcome::Acquired(acquired) => acquired_to(&acquired, time),
        Outcome::Cancelled(cancelled) => {
            Ok(Body::Cancel(wire::cancelled_to_wire(&cancelled, time)))
        }
        Outcome::Released { .. } => Ok(Body::Release(v1::ReleaseResponse {
            cluster_time_ms: time.0,
        })),
        Outcome::Transferred { to, token } => Ok(Body::Transfer(v1::TransferResponse {
            to_session: to.get(),
            token: token.get(),
            cluster_time_ms: time.0,
        })),
        Outcome::Closed { cause } => Ok(Body::Close(wire::closed_to_wire(cause.as_ref(), time))),
        Outcome::Rejected(rejection) => Err(Refusal::from_rejection(&rejection)),
        other => Err(Refusal::fault(format!("{other:?} answers no request"))),
    }
}

fn opened_to(opened: &Opened, time: ClusterTime, node: &Node) -> Result<Body, Refusal> {
    let cluster = node.read(|state| state.cluster());
    let cluster = cluster.ok_or_else(|| Refusal::outcome_unknown("this node has no state yet"))?;
    Ok(Body::Open(wire::opened_to_wire(opened, time, &cluster)))
}

fn acquired_to(acquired: &Acquired, time: ClusterTime) -> Result<Body, Refusal> {
    let grant = wire::acquired_to_wire(acquired)?;
    Ok(Body::Acquire(v1::AcquireResponse {
        grant: Some(grant),
        opened: None,
        cluster_time_ms: time.0,
    }))
}

fn not_proposed(error: ProposeError) -> Refusal {
    match error {
        ProposeError::NotDone {
            why,
            leader,
            retry_after,
        } => {
            let leader = leader.as_ref().map(|leader| leader.client_address.as_str());
            Refusal::unavailable(why, leader, retry_after.unwrap_or(RETRY_AFTER))
        }
        ProposeError::Unknown { why } => Refusal::outcome_unknown(why),
        ProposeError::Fault { why } => Refusal::fault(why),
    }
}

/// A read has no effect, so that it may always be repeated.
fn not_read(error: ProposeError) -> Refusal {
    match error {
        ProposeError::Unknown { why } => Refusal::unavailable(why, None, RETRY_AFTER),
        other => not_proposed(other),
    }
}
