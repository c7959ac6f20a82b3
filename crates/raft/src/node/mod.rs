//! A node of a cluster: what the server sees of this crate.

mod half;
mod members;
pub(crate) mod metrics;
pub(crate) mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use ringfence_core::{Access, Command, Frozen, Mode, RequestNumber, SessionId, StateMachine};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::encode_command;
use ringfence_tls::PortFigures;
use tokio::sync::{oneshot, watch};

use crate::leader::term::Route;
use crate::node::metrics::NodeMetrics;
use crate::platform::clock;
use crate::read::freshness::status_of;
use crate::read::reading::{self, Known};
use crate::read::silence::{Silence, silence};
use crate::requests::keepalive::{
    Acknowledgement, KeepAlive, KeepAliveSource, KeptAlive, losses_known_here, unknown_here,
};
use crate::requests::propose::{Origin, Pending};
use crate::shared::inner::Inner;
use crate::spans::Spans;
use crate::spans::current::current;
use crate::store::events::{EventFeed, Position};
use crate::store::waiters::{WaitDone, Waiter, WaiterKey};
use crate::types::incarnation::Incarnation;
use crate::types::reply::{Applied, ProposeError, Reply};
use crate::types::status::Status;
use crate::types::stop::StopReason;
use ringfence_history::{HistoryAnswer, HistoryError, HistoryQuery};

/// How many sessions of a keep-alive are looked at for the shortest TTL; those of one client mostly
/// have the same.
const TTLS_LOOKED_AT_MAX: usize = 4;
/// How long keep-alives wait for a leader at least: an election takes about so long.
const KEEP_ALIVE_WAIT_MIN: Duration = Duration::from_millis(300);
/// How long handing leadership over may take when a node shuts down.
const TRANSFER_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long Raft may take to stop.
const STOP_MAX: Duration = Duration::from_millis(500);
/// How long the log and the history may take to write what they still have. Whatever was
/// acknowledged is on disk already.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// A running node. Clones are the same node; it ends with [`Node::shutdown`], or on its own.
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
        status_of(&self.inner)
    }

    /// Follows the status: at once when the leader changes, a few times a second otherwise.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.inner.status.subscribe()
    }

    /// Logs a command, through the leader if need be, and calls `reply` once with its answer.
    ///
    /// While no node leads it waits for at most `leader_wait`. `reply` may be called on any thread
    /// of the runtime and must not block.
    pub fn submit(
        &self,
        command: Command,
        reply: impl FnOnce(Result<Applied, ProposeError>) + Send + 'static,
    ) {
        self.submit_encoded(encode_command(&command), Reply::new(reply));
    }

    fn submit_encoded(&self, command: Bytes, reply: Reply<Applied>) {
        self.inner.proposals.submit(Pending {
            command,
            reply,
            origin: Origin::Here,
            deadline: clock::since_boot() + self.inner.config.timing.leader_wait,
            refusal: None,
            rests: false,
            span: current(),
        });
    }

    /// Where the spans of the calls that this node serves go.
    #[must_use]
    pub fn spans(&self) -> &Spans {
        &self.inner.config.spans
    }

    /// Logs a command and waits for its answer.
    ///
    /// # Errors
    /// See [`ProposeError`]. A refused command is no error but an outcome.
    pub async fn propose(&self, command: Command) -> Result<Applied, ProposeError> {
        self.propose_encoded(encode_command(&command)).await
    }

    /// Logs an encoded command, as [`Node::propose`] does; for tests.
    ///
    /// # Errors
    /// See [`ProposeError`].
    #[doc(hidden)]
    pub async fn propose_encoded(&self, command: Bytes) -> Result<Applied, ProposeError> {
        answer(|reply| self.submit_encoded(command, reply)).await
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
        leading.write_admitted(&command).await
    }

    /// Keeps sessions alive, through the leader if need be.
    ///
    /// # Errors
    /// See [`ProposeError`]. Sessions that are not alive are part of the answer.
    pub async fn keep_alive(&self, request: KeepAlive) -> Result<KeptAlive, ProposeError> {
        let (wait, source) = (self.keep_alive_wait(&request), KeepAliveSource::UNNAMED);
        let keepalives = &self.inner.keepalives;
        answer(|reply| keepalives.submit(source, request, wait, reply)).await
    }

    /// The same with a call instead of a future; `reply` must not block. Where many wait, sources
    /// are served in turn.
    pub fn submit_keep_alive(
        &self,
        source: KeepAliveSource,
        request: KeepAlive,
        reply: impl FnOnce(Result<KeptAlive, ProposeError>) + Send + 'static,
    ) {
        let wait = self.keep_alive_wait(&request);
        self.inner
            .keepalives
            .submit(source, request, wait, Reply::new(reply));
    }

    /// Where in a keep-alive the sessions stand that its caller would be refused by this node's state:
    /// those that are not alive, whose secret is another one, or that are not for this caller. The
    /// state may lag: what it does not know may have been opened since, so a session is not over by
    /// that. It is looked at in parts, so that what is applied does not wait for all of them.
    #[must_use]
    pub fn unknown_sessions(&self, request: &KeepAlive) -> Vec<usize> {
        unknown_here(&self.inner.state, request)
    }

    /// The losses that a keep-alive acknowledges and that this node's state has of the sessions that it
    /// names, sorted. The state may lag, so another may be a loss all the same.
    #[must_use]
    pub fn known_losses(&self, request: &KeepAlive) -> Vec<Acknowledgement> {
        losses_known_here(&self.inner.state, request)
    }

    /// How long keep-alives wait for a leader: no longer than half of the shortest TTL, so that the
    /// client learns in time to ask another node.
    fn keep_alive_wait(&self, request: &KeepAlive) -> Duration {
        let limit = self.inner.config.timing.leader_wait;
        let machine = self.inner.state.machine();
        let sessions = request.sessions.iter().take(TTLS_LOOKED_AT_MAX);
        let ttls = sessions.filter_map(|(session, _)| Some(machine.session(*session)?.ttl));
        let shortest = ttls
            .min()
            .map_or(limit, |ttl| Duration::from_millis(ttl.0) / 2);
        limit.min(shortest.max(KEEP_ALIVE_WAIT_MIN))
    }

    /// Returns once [`Node::read`] shows everything that was acknowledged, by any node, before
    /// this call.
    ///
    /// # Errors
    /// [`ProposeError::NotDone`] if no leader confirmed it within `leader_wait`.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        reading::barrier(&self.inner).await
    }

    /// Whether the log has a position that some node reported: an index, and the term of its entry
    /// if that is known. A position that it has not was reported by a log that was lost since; a
    /// reader that waits for it leaves out what happens until the new log gets there.
    ///
    /// # Errors
    /// As [`Node::read_barrier`], which a position ahead of this node needs.
    pub async fn known(&self, at: Position, term: Option<u64>) -> Result<Known, ProposeError> {
        reading::known(&self.inner, at, term).await
    }

    /// How long ago, at most, local state held everything acknowledged; `None` if it is unknown.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        if let Some(running) = self.inner.running.get()
            && let Route::Leader(leading) = &*self.inner.route.borrow()
        {
            // No other node can commit, so its own disk alone says how it fares.
            if leading.members.has_one_voter() {
                return Some(leading.members.flush_lag());
            }
            if let Some(ago) = running.quorum_acked_ago(&self.inner.awake) {
                return Some(ago);
            }
        }
        self.inner.newest_ago()
    }

    /// How far the wall clock of another member is at least from this node's: the farthest of those
    /// that answered when this node last looked, a few seconds ago. `None` if none did.
    #[must_use]
    pub fn clocks_apart(&self) -> Option<Duration> {
        self.inner.clocks_apart()
    }

    /// For how long no majority has stood behind a leader, as far as this node knows; `None` while one
    /// does, and while the node belongs to no cluster. What was heard at most `within` ago counts.
    #[must_use]
    pub fn silence(&self, within: Duration) -> Option<Silence> {
        silence(&self.inner, within)
    }

    /// Whether local state has held everything acknowledged at some time since the node started. Before
    /// that it may be from long ago, and what it has not may be there all the same.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.age().is_some() || planted(Bug::CaughtUpAtOnce)
    }

    /// The state at one index that has everything that was acknowledged, by any node, before this
    /// call: what a backup shows.
    ///
    /// # Errors
    /// As [`Node::read_barrier`].
    pub async fn backup(&self) -> Result<Frozen, ProposeError> {
        if !planted(Bug::BackupOfTheLocalState) {
            self.read_barrier().await?;
        }
        Ok(self.frozen())
    }

    /// Looks one thing up in the local applied state. It is locked meanwhile, and nothing is applied:
    /// whatever takes longer than a look-up belongs to [`Node::frozen`].
    pub fn read<R>(&self, look: impl FnOnce(&StateMachine) -> R) -> R {
        look(&self.inner.state.machine())
    }

    /// The rights of the local applied state, read without the lock that entries are applied under.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.state.access()
    }

    /// How much rights bind in the local applied state, without that lock too.
    #[must_use]
    pub fn access_mode(&self) -> Mode {
        self.inner.state.access_mode()
    }

    /// Whether an administrator decides the mode of this cluster, as far as this node has seen since it
    /// started: its applied state had a mode other than `off` when it had caught up, or later. It stays
    /// so if the mode is `off` again. `None` before it has caught up, whatever its disk held.
    #[must_use]
    pub fn mode_was_set(&self) -> Option<bool> {
        self.inner.state.mode_was_set()
    }

    /// Whether the disk of this node held a mode other than `off` when it started, and local state has
    /// one still. The cluster may have taken it back since.
    #[must_use]
    pub fn holds_a_mode(&self) -> bool {
        self.inner.state.holds_a_mode()
    }

    /// The local applied state as it is now, to be read without a lock while entries are applied. It
    /// is made in a microsecond, however much there is; drop it soon, since it keeps what changes
    /// meanwhile in memory.
    #[must_use]
    pub fn frozen(&self) -> Frozen {
        self.inner.state.machine().freeze()
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

    /// Counters of the peer port.
    #[must_use]
    pub fn peer_port(&self) -> &Arc<PortFigures> {
        &self.inner.peer_port
    }

    /// What this node's data directory was marked with when it was made.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// Hands leadership over if this node leads, then stops everything. It takes at most 4.5 s, also
    /// with a disk that hangs; then the directory is not free before the process ends.
    pub async fn shutdown(&self) {
        self.resign(TRANSFER_TIMEOUT).await;
        self.inner.stop.stop(StopReason::ShutDown);
        self.end().await;
    }

    /// Stops everything as it is, as a crash would, but for what is in the page cache.
    #[doc(hidden)]
    pub async fn crash(&self) {
        self.inner.stop.stop(StopReason::ShutDown);
        self.end().await;
    }

    /// Resolves when the node ends: on its own, or because of a shutdown.
    pub async fn stopped(&self) -> StopReason {
        self.inner.stop.stopped().await
    }

    /// Ends all tasks and waits until the log is closed, so that the directory is free.
    async fn end(&self) {
        // A second caller waits for the first: the directory is free only when the first is done.
        let mut ended = self.inner.ended.lock().await;
        if std::mem::replace(&mut *ended, true) {
            return;
        }
        // Tasks first: none of them may write while Raft and the log are closed under it.
        self.inner.tasks.abort_all();
        if let Some(running) = self.inner.running.get() {
            let metrics = running.raft.metrics();
            tokio::time::timeout(STOP_MAX, running.raft.shutdown())
                .await
                .ok();
            let id = metrics.borrow_watched().id;
            let log = running.log.clone();
            // Closing waits for the disk. On a thread of its own it goes on even if the time limit
            // below gives up on it.
            let log = crate::platform::runtime::blocking(move || log.close());
            // The next node in this directory clears half a snapshot away.
            let snapshot = self.inner.state.snapshot_written();
            let closed = async { tokio::join!(log, self.inner.history.close(), snapshot) };
            if tokio::time::timeout(CLOSE_MAX, closed).await.is_err() {
                tracing::warn!(
                    node_id = id,
                    "the disk did not take the end of the log, of the history or of a snapshot \
                     in time; what was acknowledged is on it all the same"
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

/// Waits for the answer of what `submit` is given a reply for. A reply always comes: one that is
/// dropped says that the outcome is unknown.
async fn answer<T: Send + 'static>(submit: impl FnOnce(Reply<T>)) -> Result<T, ProposeError> {
    let (tell, answer) = oneshot::channel();
    submit(Reply::new(move |result| drop(tell.send(result))));
    answer
        .await
        .unwrap_or_else(|_| Err(ProposeError::unknown("this node stopped")))
}
