//! A node of a cluster: what the server sees of this crate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use openraft::Instant;
use openraft::async_runtime::WatchReceiver;
use ringfence_core::{Command, RequestNumber, SessionId, StateMachine};
use ringfence_proto::raft as pb;
use ringfence_proto::record::encode_command;
use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::codec::peer_to_pb;
use crate::events::EventFeed;
use crate::history::{HistoryAnswer, HistoryError, HistoryQuery};
use crate::identity::Incarnation;
use crate::inner::Inner;
use crate::keepalive::{KeepAlive, KeptAlive};
use crate::leading::Route;
use crate::membership::{self, Member, MembershipError};
use crate::metrics::NodeMetrics;
use crate::propose::{Applied, Origin, Pending, ProposeError, Reply, write_in_term};
use crate::reading;
use crate::status::Status;
use crate::stop::StopReason;
use crate::type_config::Peer;
use crate::waiters::{WaitDone, Waiter, WaiterKey};

/// How long handing leadership over may take when a node shuts down.
const FAREWELL_MAX: Duration = Duration::from_millis(1_000);
/// How long Raft may take to stop.
const STOP_MAX: Duration = Duration::from_millis(500);
/// How long the log and the history may take to write what they still have. Whatever was
/// acknowledged is on disk already.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// A running node. Clones are the same node; it ends with [`Node::shutdown`], or by itself.
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

impl Node {
    /// Where calls of other nodes are taken.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address
    }

    /// What the node knows of itself, now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.inner)
    }

    /// Follows the status: at once when the leader changes, a few times a second otherwise.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.inner.status.subscribe()
    }

    /// Logs a command, through the leader if need be, and calls `reply` once with its answer.
    ///
    /// While nobody leads it waits for at most `leader_wait`. `reply` may be called on any thread
    /// of the runtime and must not block.
    pub fn submit(
        &self,
        command: Command,
        reply: impl FnOnce(Result<Applied, ProposeError>) + Send + 'static,
    ) {
        self.inner.proposals.submit(Pending {
            command: encode_command(&command),
            reply: Reply::new(reply),
            origin: Origin::Here,
            deadline: clock::since_boot() + self.inner.config.timing.leader_wait,
            refused: false,
        });
    }

    /// Logs a command and waits for its answer.
    ///
    /// # Errors
    /// See [`ProposeError`]. A refused command is no error but an outcome.
    pub async fn propose(&self, command: Command) -> Result<Applied, ProposeError> {
        let (tell, answer) = oneshot::channel();
        self.submit(command, move |result| {
            drop(tell.send(result));
        });
        answer
            .await
            .unwrap_or_else(|_| Err(ProposeError::unknown("this node stopped")))
    }

    /// Logs an encoded command, as [`Node::propose`] does; for tests.
    ///
    /// # Errors
    /// See [`ProposeError`].
    #[doc(hidden)]
    pub async fn propose_encoded(&self, command: Bytes) -> Result<Applied, ProposeError> {
        let (tell, answer) = oneshot::channel();
        self.inner.proposals.submit(Pending {
            command,
            reply: Reply::new(move |result| drop(tell.send(result))),
            origin: Origin::Here,
            deadline: clock::since_boot() + self.inner.config.timing.leader_wait,
            refused: false,
        });
        answer
            .await
            .unwrap_or_else(|_| Err(ProposeError::unknown("this node stopped")))
    }

    /// Logs bytes as they are, past every check, if this node leads; for tests.
    ///
    /// # Errors
    /// See [`ProposeError`].
    #[doc(hidden)]
    pub async fn log_unchecked(&self, command: Bytes) -> Result<Applied, ProposeError> {
        let Route::Leader(leading) = self.inner.route.borrow().clone() else {
            return Err(ProposeError::not_done("this node does not lead"));
        };
        let proposal = leading.stamp(&command);
        write_in_term(leading.raft(), leading.term(), proposal).await
    }

    /// Keeps sessions alive, through the leader if need be.
    ///
    /// # Errors
    /// See [`ProposeError`]. Sessions that are not alive are part of the answer.
    pub async fn keep_alive(&self, request: KeepAlive) -> Result<KeptAlive, ProposeError> {
        let (tell, answer) = oneshot::channel();
        self.submit_keep_alive(request, move |result| {
            drop(tell.send(result));
        });
        answer
            .await
            .unwrap_or_else(|_| Err(ProposeError::unknown("this node stopped")))
    }

    /// The same with a call instead of a future; `reply` must not block.
    pub fn submit_keep_alive(
        &self,
        request: KeepAlive,
        reply: impl FnOnce(Result<KeptAlive, ProposeError>) + Send + 'static,
    ) {
        let wait = self.inner.config.timing.leader_wait;
        self.inner
            .keepalives
            .submit(request, wait, Reply::new(reply));
    }

    /// Returns once [`Node::read`] shows everything that was acknowledged, by any node, before
    /// this call.
    ///
    /// # Errors
    /// [`ProposeError::NotDone`] if no leader confirmed it within `leader_wait`.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        reading::barrier(&self.inner).await
    }

    /// How long ago, at most, local state held everything acknowledged; `None` if nobody knows.
    /// Asking makes the node find out for the next time.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        if let Some(running) = self.inner.running.get()
            && matches!(&*self.inner.route.borrow(), Route::Leader(_))
            && let Ok(leader) = running.raft.as_leader()
            && let Some(acked) = leader.last_quorum_acked()
        {
            return Some(acked.elapsed());
        }
        self.inner.age_wanted.store(true, Ordering::Relaxed);
        self.inner.newest_ago()
    }

    /// Looks at the local applied state. It is locked meanwhile: look briefly.
    pub fn read<R>(&self, look: impl FnOnce(&StateMachine) -> R) -> R {
        look(&self.inner.state.machine())
    }

    /// Waits for a request to leave its queue. Register before the request is proposed, or what
    /// happens in between goes unnoticed. It survives installed snapshots.
    pub fn waiter(&self, session: SessionId, number: RequestNumber) -> Waiter {
        Waiter::register(&self.inner.state.waiters, session, number)
    }

    /// The same with a call instead of a future; `settled` must not block.
    pub fn on_settled(
        &self,
        session: SessionId,
        number: RequestNumber,
        settled: Box<dyn FnOnce(WaitDone) + Send>,
    ) -> WaiterKey {
        self.inner.state.waiters.register(session, number, settled)
    }

    /// The newest events of this node.
    #[must_use]
    pub fn events(&self) -> EventFeed {
        self.inner.state.events.feed()
    }

    /// Looks up who held what, in this node's own index.
    ///
    /// # Errors
    /// [`HistoryError`] if the index cannot be read.
    pub async fn history(&self, query: HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        self.inner.history.query(query).await
    }

    /// Figures about this node.
    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics::of(&self.inner)
    }

    /// The members as this node knows them; only a leader knows how far each has come.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let leader = self.inner.route.borrow().leader();
        let running = self.inner.running.get();
        running
            .map(|running| membership::members(running, leader))
            .unwrap_or_default()
    }

    /// The members as the leader knows them.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn members_of_leader(&self) -> Result<Vec<Member>, MembershipError> {
        let changed = self
            .change(pb::change_members::Change::List(pb::Nothing {}))
            .await?;
        Ok(changed
            .members
            .into_iter()
            .filter_map(membership::member_from_pb)
            .collect())
    }

    /// What this node's data directory was marked with when it was made.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// Takes a node in as a learner and says under which id. Nodes ask for this themselves when
    /// they join; one that is a member already keeps its id.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_member(
        &self,
        name: String,
        peer_address: String,
        client_address: String,
        incarnation: Incarnation,
    ) -> Result<u64, MembershipError> {
        let peer = Peer {
            name,
            peer_address,
            client_address,
            incarnation,
        };
        let added = self
            .change(pb::change_members::Change::Add(peer_to_pb(0, &peer)))
            .await?;
        Ok(added.node_id)
    }

    /// Gives a learner that has caught up a vote, in one change with the removal of `replaces`, or
    /// of the voter that has its name, if there is one.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn promote_member(
        &self,
        node_id: u64,
        replaces: Option<u64>,
    ) -> Result<(), MembershipError> {
        let replaces = replaces.unwrap_or(0);
        let promote = pb::change_members::Promote { node_id, replaces };
        drop(
            self.change(pb::change_members::Change::Promote(promote))
                .await?,
        );
        Ok(())
    }

    /// Removes a member; its id is never used again.
    ///
    /// # Errors
    /// See [`MembershipError`]; the last voter cannot be removed.
    pub async fn remove_member(&self, node_id: u64) -> Result<(), MembershipError> {
        drop(
            self.change(pb::change_members::Change::Remove(node_id))
                .await?,
        );
        Ok(())
    }

    /// Hands leadership to a voter, or to the one that is furthest ahead, and says who leads.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<u64, MembershipError> {
        let change = pb::change_members::Change::TransferLeader(to.unwrap_or(0));
        Ok(self.change(change).await?.node_id)
    }

    async fn change(
        &self,
        change: pb::change_members::Change,
    ) -> Result<pb::MembersChanged, MembershipError> {
        membership::change(
            &self.inner,
            pb::ChangeMembers {
                change: Some(change),
            },
        )
        .await
    }

    /// Hands leadership over if this node leads, then stops everything. It takes at most 4.5 s, also
    /// with a disk that hangs; then the directory is not free before the process ends.
    pub async fn shutdown(&self) {
        if let Some(running) = self.inner.running.get()
            && matches!(&*self.inner.route.borrow(), Route::Leader(_))
        {
            let handed = membership::hand_over(running, 0);
            match tokio::time::timeout(FAREWELL_MAX, handed).await {
                Ok(Ok(to)) => tracing::info!(to, "leadership is handed over"),
                Ok(Err(error)) => tracing::debug!(%error, "leadership is not handed over"),
                Err(_) => tracing::debug!("handing leadership over took too long"),
            }
        }
        self.inner.stop.stop(StopReason::ShutDown);
        self.end().await;
    }

    /// Stops everything as it is, as a crash would, but for what is in the page cache.
    #[doc(hidden)]
    pub async fn crash(&self) {
        self.inner.stop.stop(StopReason::ShutDown);
        self.end().await;
    }

    /// Resolves when the node ends: by itself, or because it was told to.
    pub async fn stopped(&self) -> StopReason {
        self.inner.stop.stopped().await
    }

    /// Ends all tasks and waits until the log is closed, so that the directory is free.
    async fn end(&self) {
        // Whoever comes second waits for the first: only then is the directory free.
        let mut ended = self.inner.ended.lock().await;
        if std::mem::replace(&mut *ended, true) {
            return;
        }
        self.inner.tasks.abort_all();
        if let Some(running) = self.inner.running.get() {
            let metrics = running.raft.metrics();
            drop(tokio::time::timeout(STOP_MAX, running.raft.shutdown()).await);
            let id = metrics.borrow_watched().id;
            let log = running.log.clone();
            // From here on a thread of its own waits for the disk, whoever drops what.
            let log = crate::runtime::blocking(move || log.close());
            let closed = async { tokio::join!(log, self.inner.history.close()) };
            if tokio::time::timeout(CLOSE_MAX, closed).await.is_err() {
                tracing::warn!(
                    node_id = id,
                    "the disk did not take the end of the log and of the history in time; what \
                     was acknowledged is on it all the same"
                );
            }
            tracing::info!(node_id = id, "the node has stopped");
        } else if tokio::time::timeout(CLOSE_MAX, self.inner.history.close())
            .await
            .is_err()
        {
            tracing::warn!("the disk did not take the end of the history in time");
        }
        self.inner.unlock_dir();
    }
}
