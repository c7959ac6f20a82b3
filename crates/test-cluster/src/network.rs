//! The streams between processes and nodes: each message takes its time, messages of one direction
//! keep their order, a link that is cut holds all of them back until it is healed.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt};
use ringfence_client::sim::{Incoming, Network, Outgoing};
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{v1, wire};
use tokio::sync::{Notify, mpsc};

use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::flag::Flag;
use crate::process::Process;
use crate::serving::{self, Answer};

/// A message is under way for 1 ms to this long.
const TRAVEL_MAX_MS: u64 = 5;
/// The most messages of one direction of a stream that are under way together.
const UNDER_WAY_MAX: usize = 1_024;

/// The nodes, as far as connections see them: whether each is up.
pub(crate) struct Nodes {
    pub(crate) up: Vec<Arc<Flag>>,
    /// The chance of the world.
    pub(crate) chance: Chance,
    pub(crate) cluster: Arc<Cluster>,
    /// Notified when a store has taken a stale write.
    pub(crate) stale: Notify,
}

pub(crate) fn address(node: usize) -> String {
    format!("n{}:7420", node + 1)
}

impl Nodes {
    fn greeting(&self, node: usize) -> v1::Greeting {
        let leader = self.cluster.leader();
        let (cluster, time) = self
            .cluster
            .read(|machine| (machine.cluster(), machine.time()));
        v1::Greeting {
            cluster_id: cluster
                .map(|name| wire::cluster_id_to_wire(&name))
                .unwrap_or_default(),
            node_id: node as u64 + 1,
            cluster_time_ms: time.0,
            leader_id: leader.map_or(0, |leader| leader as u64 + 1),
            leader_client_address: leader.map(address).unwrap_or_default(),
            term: self.cluster.term(),
        }
    }
}

/// The way of one process to the nodes.
pub(crate) struct Way {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) process: Arc<Process>,
}

impl Network for Way {
    fn connect(
        &self,
        to: &str,
        outgoing: Outgoing,
    ) -> BoxFuture<'static, Result<Incoming, String>> {
        let (nodes, process) = (self.nodes.clone(), self.process.clone());
        let to = to.to_owned();
        Box::pin(async move {
            let node = (0..nodes.up.len()).find(|node| address(*node) == to);
            let node = node.ok_or_else(|| format!("no node is at {to}"))?;
            let chance = process.chance.fork();
            let there_and_back = chance.time(TRAVEL_MAX_MS) + chance.time(TRAVEL_MAX_MS);
            tokio::time::sleep(there_and_back).await;
            process.link().await;
            if !nodes.up[node].get() {
                return Err(format!("{to} refuses the connection"));
            }
            Ok(connected(nodes, process, node, &chance, outgoing))
        })
    }
}

fn connected(
    nodes: Arc<Nodes>,
    process: Arc<Process>,
    node: usize,
    chance: &Chance,
    mut outgoing: Outgoing,
) -> Incoming {
    let (ask, asked) = mpsc::unbounded_channel();
    let (answer, answers) = mpsc::unbounded_channel();
    let (tell, incoming) = mpsc::unbounded_channel();
    // On the process's own host: one that is paused sends nothing.
    drop(process.host.spawn(async move {
        while let Some(message) = outgoing.next().await {
            if ask.send(message).is_err() {
                return;
            }
        }
    }));
    let up = nodes.up[node].clone();
    let arrived = under_way(chance.fork(), &process, asked);
    let answered = under_way(chance.fork(), &process, answers);
    drop(tokio::spawn(serve(
        nodes,
        process.clone(),
        node,
        up.clone(),
        arrived,
        answer,
    )));
    drop(tokio::spawn(deliver(process, up, answered, tell)));
    incoming
}

/// What has been sent, each when it arrives.
fn under_way<T: Send + 'static>(
    chance: Chance,
    process: &Arc<Process>,
    mut sent: mpsc::UnboundedReceiver<T>,
) -> impl Stream<Item = T> + Send + Unpin + 'static {
    let process = process.clone();
    let sent = stream::poll_fn(move |cx| sent.poll_recv(cx));
    let arriving = sent.map(move |message| {
        let (time, process) = (chance.time(TRAVEL_MAX_MS), process.clone());
        let at = tokio::time::sleep(time);
        async move {
            at.await;
            process.link().await;
            message
        }
    });
    Box::pin(arriving.buffered(UNDER_WAY_MAX))
}

/// The node's end of a stream, until the client ends it or the node goes down.
async fn serve(
    nodes: Arc<Nodes>,
    process: Arc<Process>,
    node: usize,
    up: Arc<Flag>,
    mut arrived: impl Stream<Item = v1::ClientMessage> + Unpin,
    answer: mpsc::UnboundedSender<v1::ServerMessage>,
) {
    let message = |frame| v1::ServerMessage {
        frames: vec![frame],
    };
    let greeting = v1::ServerFrame {
        id: 0,
        body: Some(Body::Greeting(nodes.greeting(node))),
    };
    answer.send(message(greeting)).ok();
    let mut waits = stream::FuturesUnordered::new();
    loop {
        let asked = tokio::select! {
            biased;
            () = up.is(false) => return,
            Some(frame) = waits.next() => {
                answer.send(message(frame)).ok();
                continue;
            }
            asked = arrived.next() => asked,
        };
        let Some(asked) = asked else { return };
        for frame in asked.frames {
            match serving::serve(&nodes.cluster, &process.name, frame) {
                Answer::Now(frame) => {
                    answer.send(message(*frame)).ok();
                }
                Answer::Later(wait) => waits.push(wait),
            }
        }
    }
}

/// The client's end: what arrives, and the break of the connection if the node goes down.
async fn deliver(
    process: Arc<Process>,
    up: Arc<Flag>,
    mut answered: impl Stream<Item = v1::ServerMessage> + Unpin,
    tell: mpsc::UnboundedSender<Result<v1::ServerMessage, String>>,
) {
    loop {
        let message = tokio::select! {
            biased;
            () = up.is(false) => {
                process.link().await;
                tell.send(Err("the connection broke: the node has gone".to_owned())).ok();
                return;
            }
            () = tell.closed() => return,
            message = answered.next() => message,
        };
        let Some(message) = message else { return };
        tell.send(Ok(message)).ok();
    }
}
