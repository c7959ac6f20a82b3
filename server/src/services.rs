//! The public gRPC services: decode, propose or read, encode. They decide nothing.

mod acquire;
mod answers;
mod cluster;
mod connection;
mod deadline;
mod history;
mod keep_alive;
mod leases;
mod list;
mod malformed;
mod proposals;
mod reads;
mod sessions;
mod watch;

use std::sync::Arc;

use ringfence_core::{ClusterId, ClusterTime, Command};
use ringfence_proto::Refusal;
use ringfence_raft::Node;
use tokio::sync::{Semaphore, watch as tokio_watch};
use tonic::{Request, Response, Status};

use crate::limits::WATCHERS_MAX;
use crate::metrics::Metrics;
use crate::status::{RETRY_AFTER, not_proposed};
use proposals::Proposal;
use reads::Query;
use watch::Presents;

pub(crate) use cluster::ClusterService;
pub(crate) use connection::ConnectionService;
pub(crate) use leases::LeaseService;
pub(crate) use malformed::name_malformed;
pub(crate) use sessions::SessionService;

/// What all services share.
#[derive(Clone)]
pub(crate) struct Context {
    node: Node,
    metrics: Arc<Metrics>,
    /// True once the node is stopping.
    stopping: tokio_watch::Receiver<bool>,
    /// Whether somebody watches the Pods that sessions are bound to.
    pods_watched: bool,
    /// A place for each watcher that this node may still serve.
    watchers: Arc<Semaphore>,
    /// The present states that watches are telling.
    presents: Presents,
}

impl Context {
    /// What services of `node` share; `stopping` turns true when streams have to end.
    pub(crate) fn new(
        node: Node,
        metrics: Arc<Metrics>,
        stopping: tokio_watch::Receiver<bool>,
    ) -> Self {
        Self {
            node,
            metrics,
            stopping,
            pods_watched: false,
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            presents: Presents::new(),
        }
    }

    /// Says whether Pods are watched: only then a session may be bound to one.
    pub(crate) fn watch_pods(&mut self, watched: bool) {
        self.pods_watched = watched;
    }

    /// Refuses what nobody would ever end.
    fn check(&self, command: &Command) -> Result<(), Refusal> {
        match command {
            Command::OpenForPod(open) if !self.pods_watched => {
                let allowed = "none: this cluster watches no Pods; start its nodes with --kube-pods, \
                               or open the session with a TTL";
                Err(Refusal::invalid("pod", &open.pod, allowed))
            }
            _ => Ok(()),
        }
    }

    /// The cluster and its time as this node knows them.
    fn cluster(&self) -> Result<(ClusterId, ClusterTime), Refusal> {
        let (cluster, time) = self
            .node
            .read(|machine| (machine.cluster(), machine.time()));
        cluster.map(|cluster| (cluster, time)).ok_or_else(|| {
            let why = "this node belongs to no cluster yet: it waits for all members of \
                       --initial-cluster, or for a member of --join";
            Refusal::unavailable(why, None, RETRY_AFTER)
        })
    }

    /// Resolves when the node is stopping.
    async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that whoever stops nodes is gone, which is as good as a stop.
        let _stopping = stopping
            .wait_for(|stopping| *stopping)
            .await
            .map(|stopping| *stopping);
    }
}

impl Context {
    /// Serves a unary call that becomes one log entry.
    async fn call<P: Proposal>(&self, request: Request<P>) -> Result<Response<P::Answer>, Status> {
        let (metadata, _, request) = request.into_parts();
        let work = async {
            let command = request.command()?;
            self.check(&command)?;
            let applied = self.node.propose(command).await.map_err(not_proposed)?;
            P::answer(applied, &self.node)
        };
        let answer = deadline::within(&metadata, work).await;
        self.metrics.answered(P::CALL, &answer);
        Ok(Response::new(answer?))
    }

    /// Serves a unary call that is answered from the state.
    async fn query<Q: Query>(&self, request: Request<Q>) -> Result<Response<Q::Answer>, Status> {
        let (metadata, _, request) = request.into_parts();
        let answer = deadline::within(&metadata, self.read(request)).await;
        self.metrics.answered(Q::CALL, &answer);
        Ok(Response::new(answer?))
    }
}
