//! What serves the clients of a node: decode, propose or read, encode. It decides nothing.
//!
//! ```text
//!  connections ─▶ clients: each has an account ─▶ services ─▶ ringfence_raft::Node
//!                   metered bodies, bytes held      one module per service, one per
//!                   until they are written          mechanism: outbox, keep_alive, watch, list
//! ```
//!
//! Nothing here opens a socket. The binary puts the services behind its client port; the simulation
//! drives [`serve`], the multiplexed stream, over its own network.

mod access;
mod acquire;
mod address;
#[cfg(test)]
mod alone;
mod backup;
mod caller;
mod clients;
mod cluster;
mod connection;
mod deadline;
mod displaced;
mod history;
mod keep_alive;
mod leases;
mod limits;
mod list;
mod malformed;
mod metrics;
mod named_cluster;
mod objects;
mod outbox;
mod paging;
mod places;
pub mod problem;
mod proposals;
mod rates;
mod reads;
mod refusals;
mod rights;
#[cfg(test)]
mod rpcs;
mod sessions;
mod spans;
mod status;
mod unknown;
mod waits;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfence_core::{ClusterId, ClusterTime, Command, Pod};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::{Node, ProposeError, Silence, Spans};
use tokio::sync::{Semaphore, watch as tokio_watch};
use tonic::{Request, Response, Status};

use crate::caller::Who;
use crate::limits::BACKUPS_MAX;
use crate::metrics::Call;
use crate::places::Places;
use crate::status::{RETRY_AFTER, not_proposed};
use proposals::Proposal;
use rates::Rates;
use reads::Query;
use unknown::UnknownSessions;
use watch::Presents;

pub use access::AccessService;
pub use address::{HOST_PORT_ALLOWED, is_host_port};
pub use caller::{Identified, ProvenPod, since_epoch};
pub use clients::{Account, Client, MeteredLayer, NoBody, Pool, WholeBody};
pub use cluster::{ClusterService, SILENCE_HEADER, SILENCE_MAX, SILENT_SINCE_START, WALL_HEADER};
pub use connection::{AnswerObserver, ConnectionService, Outgoing, serve};
pub use leases::LeaseService;
pub use limits::CAUGHT_UP_AFTER;
pub use malformed::name_malformed;
pub use metrics::Metrics;
pub use named_cluster::CLUSTER_HEADER;
pub use objects::{Fresh, ObjectCaller, ObjectListing, ObjectRefused, ObjectService, ObjectsAsked};
pub use places::Place;
pub use rates::{ConnectionPrincipals, Meter, PrincipalRates, is_health};
pub use refusals::{RefusalCounts, Refusals, Refused};
pub use rights::FIGURES;
pub use sessions::SessionService;
pub use spans::{UNARY_METHODS, end_with_code, note_method};

/// What all services share.
#[derive(Clone)]
pub struct Context {
    node: Node,
    metrics: Arc<Metrics>,
    /// True once the node is stopping.
    stopping: tokio_watch::Receiver<bool>,
    /// What the connections of clients borrow from.
    pool: Arc<Pool>,
    /// A place for each watcher that this node may still serve.
    watchers: Places,
    /// The same for each list of Lease objects.
    lists: Places,
    /// A place for each backup that this node may still write.
    backups: Arc<Semaphore>,
    /// The present states that watches are telling.
    presents: Presents,
    /// This node's number, once it has one.
    own_id: Arc<OnceLock<u64>>,
    /// What principals have taken of this node.
    rates: Arc<Rates>,
    /// What they have named of sessions that this node does not know.
    unknown_sessions: Arc<UnknownSessions>,
}

impl Context {
    /// What services of `node` share; clients borrow from `pool`. `stopping` turns true when streams
    /// have to end.
    #[must_use]
    pub fn new(node: Node, pool: Arc<Pool>, stopping: tokio_watch::Receiver<bool>) -> Self {
        Self {
            node,
            metrics: Metrics::new(),
            stopping,
            pool,
            watchers: Places::of_watches(),
            lists: Places::of_lists(),
            backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
            presents: Presents::new(),
            own_id: Arc::default(),
            rates: Rates::new(PrincipalRates::default()),
            unknown_sessions: UnknownSessions::new(),
        }
    }

    /// The account of a new connection of this node.
    #[must_use]
    pub fn new_account(&self) -> Arc<Account> {
        Account::new(Arc::clone(&self.pool))
    }

    /// For how long no majority has stood behind a leader, as far as this node knows; see
    /// [`Node::silence`].
    #[must_use]
    pub fn silence(&self, within: Duration) -> Option<Silence> {
        self.node.silence(within)
    }

    /// Where the spans of the calls that this node serves go.
    #[must_use]
    pub fn spans(&self) -> &Spans {
        self.node.spans()
    }

    /// What the services of this node have counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The account of the connection that a request came by.
    fn account<T>(&self, request: &Request<T>) -> Arc<Account> {
        match request.extensions().get::<Client>() {
            Some(client) => Arc::clone(client.account()),
            None => self.new_account(),
        }
    }

    /// This node's number, which never changes; 0 while it has none.
    fn own_id(&self) -> u64 {
        if let Some(known) = self.own_id.get() {
            return *known;
        }
        match self.node.status().node_id {
            Some(id) => *self.own_id.get_or_init(|| id),
            None => 0,
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
        // An error means that the code that stops nodes is gone, which is as good as a stop.
        let _stopping = stopping
            .wait_for(|stopping| *stopping)
            .await
            .map(|stopping| *stopping);
    }
}

/// The Pod that a command would bind a session to.
fn pod_of(command: &Command) -> Option<Pod> {
    match command.bare() {
        Command::OpenForPod(open) => Some(open.pod.clone()),
        _ => None,
    }
}

/// Why a command that may bind a session to this Pod brought no outcome. The leader decides whether
/// it may: a session that no process would ever end is refused.
fn not_logged(pod: Option<&Pod>, error: ProposeError) -> Refusal {
    match (pod, error) {
        (
            Some(pod),
            ProposeError::NotDone {
                retry_after: None, ..
            },
        ) => {
            let allowed = "none: the leader watches no Pods; start all nodes with --kube-pods, or \
                           open the session with a TTL";
            Refusal::invalid("pod", pod, allowed)
        }
        (_, error) => not_proposed(error),
    }
}

/// A refusal that may be repeated names the leader, if another node is known to lead: what refused
/// it may not have known.
fn hinted(node: &Node, refusal: Refusal) -> Refusal {
    if refusal.reason != Reason::Unavailable || refusal.metadata.contains_key("leader") {
        return refusal;
    }
    let status = node.status();
    let leader = status.leader;
    match leader.filter(|leader| Some(leader.node_id) != status.node_id) {
        Some(leader) => refusal.with("leader", leader.client_address),
        None => refusal,
    }
}

impl Context {
    /// Counts an answer, and adds to a refusal who leads.
    fn answered<T>(&self, call: Call, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        let answer = answer.map_err(|refusal| hinted(&self.node, refusal));
        self.metrics.answered(call, &answer);
        answer
    }

    /// Serves a unary call that becomes one log entry.
    async fn call<P: Proposal>(&self, request: Request<P>) -> Result<Response<P::Answer>, Status> {
        let (account, who) = (self.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        let work = async {
            self.is_meant(&metadata)?;
            let command = self.asked(&who, &account, request.command()?)?;
            let pod = pod_of(&command);
            let applied = self.node.propose(command).await;
            let applied = applied.map_err(|error| not_logged(pod.as_ref(), error))?;
            P::answer(applied, &self.node)
        };
        let answer = deadline::within(&metadata, work).await;
        let answer = self.answered(P::CALL, answer);
        Ok(Response::new(answer?))
    }

    /// Serves a unary call that is answered from the state.
    async fn query<Q: Query>(&self, request: Request<Q>) -> Result<Response<Q::Answer>, Status> {
        let account = self.account(&request);
        let who = Who::of(&request);
        let (metadata, _, request) = request.into_parts();
        let answer = deadline::within(&metadata, self.read(&who, request)).await;
        let answer = answer.and_then(|answer| paging::in_room(&account, answer));
        Ok(self.answered(Q::CALL, answer)?)
    }
}
