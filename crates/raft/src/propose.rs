//! The way of a command into the log: stamped and written here if this node leads, handed to the
//! leader once if it does not, held for a while if nobody leads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use ringfence_core::{ClusterTime, Outcome, Rejection};
use ringfence_planted::{Bug, planted};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::forward::{CallBody, Failed};
use crate::leading::{Leading, Route};
use crate::type_config::{CommittedLeaderId, FnResponder, Raft, TypeConfig};

/// The most proposals that wait on one node to be written or forwarded.
pub const PROPOSALS_QUEUED_MAX: usize = 65_536;
/// The most proposals taken from the queue at once.
const BATCH: usize = 1_024;
/// How long a proposal waits before it is tried again after a refusal that left no trace.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The answer to an applied command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What the state machine said.
    pub outcome: Outcome,
    /// The log index of the entry.
    pub index: u64,
    /// Cluster time after the entry.
    pub time: ClusterTime,
}

/// Where the leader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderHint {
    /// Its node id.
    pub node_id: u64,
    /// host:port for clients.
    pub client_address: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Certainly without effect, now and later.
    #[error("not done: {why}")]
    NotDone {
        /// Why.
        why: String,
        /// Where it may be tried, if known.
        leader: Option<LeaderHint>,
        /// When it may be tried again.
        retry_after: Option<Duration>,
    },
    /// It may have happened, or may still happen.
    #[error("outcome unknown: {why}")]
    Unknown {
        /// Why.
        why: String,
    },
    /// This node cannot work any more.
    #[error("fault: {why}")]
    Fault {
        /// Why.
        why: String,
    },
}

impl ProposeError {
    pub(crate) fn not_done(why: impl Into<String>) -> Self {
        Self::NotDone {
            why: why.into(),
            leader: None,
            retry_after: Some(RETRY_LATER),
        }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }
}

/// What a caller is told to wait before it tries again.
const RETRY_LATER: Duration = Duration::from_millis(200);

/// A reply that is given exactly once: one that is dropped says that the outcome is unknown.
pub(crate) struct Reply<T>(Option<ReplyTo<T>>);

type ReplyTo<T> = Box<dyn FnOnce(Result<T, ProposeError>) + Send>;

impl<T> Reply<T> {
    pub(crate) fn new(reply: impl FnOnce(Result<T, ProposeError>) + Send + 'static) -> Self {
        Self(Some(Box::new(reply)))
    }

    pub(crate) fn send(mut self, result: Result<T, ProposeError>) {
        if let Some(reply) = self.0.take() {
            reply(result);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(Err(ProposeError::unknown(
                "this node stopped before the answer came",
            )));
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller of this node.
    Here,
    /// Another node, which took this one for the leader: it is not handed on a second time.
    Peer,
}

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The encoded command.
    pub(crate) command: Bytes,
    pub(crate) reply: Reply<Applied>,
    pub(crate) origin: Origin,
    /// Until when it waits for a leader, on [`clock::since_boot`].
    pub(crate) deadline: Duration,
    /// It was refused before and must not be tried again at once.
    pub(crate) refused: bool,
}

/// The queue into the pump.
#[derive(Debug, Clone)]
pub(crate) struct Proposals {
    queue: mpsc::Sender<Pending>,
}

impl Proposals {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Pending>) {
        let (queue, pending) = mpsc::channel(PROPOSALS_QUEUED_MAX);
        (Self { queue }, pending)
    }

    pub(crate) fn submit(&self, pending: Pending) {
        match self.queue.try_send(pending) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(pending)) => {
                let why = format!("{PROPOSALS_QUEUED_MAX} proposals are waiting on this node");
                pending.reply.send(Err(ProposeError::not_done(why)));
            }
            Err(mpsc::error::TrySendError::Closed(pending)) => {
                pending
                    .reply
                    .send(Err(ProposeError::not_done("this node is shutting down")));
            }
        }
    }

    /// Tries once more what was refused without a trace, or tells its caller.
    fn refused(&self, mut pending: Pending, why: String, leader: Option<LeaderHint>) {
        if pending.origin == Origin::Peer || clock::since_boot() >= pending.deadline {
            let retry_after = Some(RETRY_LATER);
            pending.reply.send(Err(ProposeError::NotDone {
                why,
                leader,
                retry_after,
            }));
            return;
        }
        pending.refused = true;
        self.submit(pending);
    }
}

/// Takes proposals from the queue and sends each on its way.
pub(crate) struct Pump {
    pub(crate) proposals: Proposals,
    pub(crate) pending: mpsc::Receiver<Pending>,
    pub(crate) route: watch::Receiver<Route>,
}

impl Pump {
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut waiting: VecDeque<Pending> = VecDeque::new();
        // One clock for all: a pause that began anew with every proposal would never be over.
        let mut again = tokio::time::interval(RETRY_AFTER);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = waiting.len() < PROPOSALS_QUEUED_MAX;
            tokio::select! {
                // Without room the queue fills up, and says so to whoever comes next.
                taken = self.pending.recv_many(&mut batch, BATCH), if room => {
                    if taken == 0 {
                        return;
                    }
                    // Whoever is about to propose gets to do so: fuller batches for the core.
                    tokio::task::yield_now().await;
                    while batch.len() < BATCH && let Ok(more) = self.pending.try_recv() {
                        batch.push(more);
                    }
                }
                changed = self.route.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = again.tick(), if !waiting.is_empty() => {
                    waiting.iter_mut().for_each(|pending| pending.refused = false);
                }
            }
            let route = self.route.borrow_and_update().clone();
            waiting.extend(batch.drain(..));
            self.send_on(&route, &mut waiting).await;
        }
    }

    /// Sends on what can be; what cannot stays in `waiting` until its deadline.
    async fn send_on(&self, route: &Route, waiting: &mut VecDeque<Pending>) {
        for _ in 0..waiting.len() {
            let Some(pending) = waiting.pop_front() else {
                return;
            };
            match route {
                Route::Leader(leading) if !pending.refused => {
                    self.write(leading, pending).await;
                }
                Route::Follower(forwarder)
                    if !pending.refused && pending.origin == Origin::Here =>
                {
                    let proposals = self.proposals.clone();
                    let body = CallBody::Propose(pending.command.clone());
                    forwarder.call(body, move |answer| match answer {
                        Ok(answer) => pending.reply.send(answer.into_applied()),
                        Err(Failed::NotSent(why)) => proposals.refused(pending, why, None),
                        Err(Failed::Refused(ProposeError::NotDone { why, leader, .. })) => {
                            proposals.refused(pending, why, leader);
                        }
                        Err(Failed::Refused(error)) => pending.reply.send(Err(error)),
                        Err(Failed::Broken(why)) => {
                            pending.reply.send(Err(ProposeError::unknown(why)));
                        }
                    });
                }
                _ if pending.origin == Origin::Peer => {
                    let why = "this node does not lead".to_owned();
                    let leader = route.hint();
                    let retry_after = Some(RETRY_LATER);
                    pending.reply.send(Err(ProposeError::NotDone {
                        why,
                        leader,
                        retry_after,
                    }));
                }
                _ if clock::since_boot() >= pending.deadline => {
                    let error = ProposeError::not_done("no node of the cluster leads at present");
                    pending.reply.send(Err(error));
                }
                _ => waiting.push_back(pending),
            }
        }
    }

    async fn write(&self, leading: &Arc<Leading>, pending: Pending) {
        if let Err(why) = leading.admit(&pending.command) {
            return self.proposals.refused(pending, why, None);
        }
        let proposal = leading.stamp(&pending.command);
        let proposals = self.proposals.clone();
        let responder =
            FnResponder(Box::new(
                move |result: ClientWriteResult<TypeConfig>| match classify(result) {
                    Written::Applied(Applied {
                        outcome: Outcome::Rejected(Rejection::NotReady),
                        ..
                    }) => {
                        proposals.refused(pending, "the term is not open yet".to_owned(), None);
                    }
                    Written::Applied(applied) => pending.reply.send(Ok(applied)),
                    Written::NotAppended(why) => proposals.refused(pending, why, None),
                    Written::Unknown(why) => pending.reply.send(Err(ProposeError::unknown(why))),
                },
            ));
        let leader = CommittedLeaderId::new(leading.term());
        // On an error the responder is dropped, and says that the outcome is unknown.
        let written = leading
            .raft()
            .write(proposal)
            .responder(responder)
            .with_leader(leader)
            .await;
        if let Err(fatal) = written {
            tracing::warn!(%fatal, "a proposal was not taken");
        }
    }
}

/// What openraft's answer to a write means.
pub(crate) enum Written {
    Applied(Applied),
    /// It never got into the log.
    NotAppended(String),
    /// It may be in the log.
    Unknown(String),
}

pub(crate) fn classify(result: ClientWriteResult<TypeConfig>) -> Written {
    match result {
        Ok(response) => Written::Applied(response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => {
            Written::NotAppended(format!("this node does not lead ({:?})", forward.reason))
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) if planted(Bug::DiscardedIsNotDone) => {
            Written::NotAppended("leadership was lost".to_owned())
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            Written::Unknown("leadership was lost while the entry was under way".to_owned())
        }
        Err(ClientWriteError::ChangeMembershipError(error)) => Written::Unknown(error.to_string()),
        Err(ClientWriteError::PreconditionFailed(error)) => Written::Unknown(error.to_string()),
    }
}

/// Writes one entry in a term and waits until it is applied.
pub(crate) async fn write_in_term(
    raft: &Raft,
    term: u64,
    proposal: crate::proposal::Proposal,
) -> Result<Applied, ProposeError> {
    let (tell, answer) = tokio::sync::oneshot::channel();
    let responder = FnResponder(Box::new(move |result| {
        drop(tell.send(result));
    }));
    let leader = CommittedLeaderId::new(term);
    let written = raft
        .write(proposal)
        .responder(responder)
        .with_leader(leader)
        .await;
    written.map_err(|fatal| ProposeError::Fault {
        why: fatal.to_string(),
    })?;
    let result = answer
        .await
        .map_err(|_| ProposeError::unknown("the node stopped"))?;
    match classify(result) {
        Written::Applied(applied) => Ok(applied),
        Written::NotAppended(why) => Err(ProposeError::not_done(why)),
        Written::Unknown(why) => Err(ProposeError::unknown(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::forward::Forwarder;
    use crate::identity::{Incarnation, Seat};
    use crate::network::{Caller, Transport};
    use crate::type_config::Peer;

    fn pump() -> (Proposals, Pump, watch::Sender<Route>) {
        let (proposals, pending) = Proposals::new();
        let route = watch::Sender::new(Route::Nowhere);
        let pump = Pump {
            proposals: proposals.clone(),
            pending,
            route: route.subscribe(),
        };
        (proposals, pump, route)
    }

    fn pending(
        origin: Origin,
        reply: impl FnOnce(Result<Applied, ProposeError>) + Send + 'static,
    ) -> Pending {
        Pending {
            command: Bytes::new(),
            reply: Reply::new(reply),
            origin,
            deadline: clock::since_boot() + Duration::from_secs(60),
            refused: false,
        }
    }

    fn forwarder(address: String) -> Arc<Forwarder> {
        let caller = Caller {
            seat: Seat {
                cluster: ringfence_core::ClusterId::new([1; 16]),
                node_id: 1,
            },
            incarnation: Incarnation::default(),
        };
        let peer = Peer {
            peer_address: address,
            ..Peer::default()
        };
        Transport::new(caller, Arc::new(ringfence_wal::RealFs), None).forwarder(2, &peer)
    }

    #[tokio::test]
    async fn proposals_that_wait_for_a_leader_are_limited_too() {
        let (proposals, pump, _route) = pump();
        let pump = crate::runtime::spawn(pump.run());
        let refused = Arc::new(AtomicUsize::new(0));
        // What waits in the pump, what waits before it, and what it has just taken.
        let held_max = 2 * PROPOSALS_QUEUED_MAX + 2 * BATCH;
        for n in 0..held_max + 1_000 {
            let count = refused.clone();
            proposals.submit(pending(Origin::Here, move |result| {
                if matches!(result, Err(ProposeError::NotDone { .. })) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
            if n % BATCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert!(refused.load(Ordering::Relaxed) >= 1_000);
        pump.abort();
    }

    #[tokio::test]
    async fn a_refused_proposal_is_tried_again_while_others_keep_coming() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = forwarder(listener.local_addr().unwrap().to_string());
        let (proposals, pump, route) = pump();
        route.send_replace(Route::Follower(forwarder));
        let pump = crate::runtime::spawn(pump.run());
        proposals.submit(pending(Origin::Here, drop));
        let busy = crate::runtime::spawn(async move {
            loop {
                proposals.submit(pending(Origin::Peer, drop));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        // Whoever connects is turned away, so each connection is one more attempt.
        let attempts = async {
            for _ in 0..50 {
                drop(listener.accept().await.unwrap());
            }
        };
        let tried = tokio::time::timeout(Duration::from_secs(10), attempts).await;
        busy.abort();
        pump.abort();
        assert!(tried.is_ok(), "it was not tried again");
    }

    /// The library offers both of them as a hint to go elsewhere; only one says that nothing was
    /// done.
    #[test]
    fn an_entry_that_was_discarded_by_its_leader_may_still_commit() {
        let elsewhere = openraft::errors::ForwardToLeader::empty;
        let discarded = classify(Err(ClientWriteError::LogEntryDiscarded(elsewhere())));
        assert!(matches!(discarded, Written::Unknown(_)));
        let refused = classify(Err(ClientWriteError::ForwardToLeader(elsewhere())));
        assert!(matches!(refused, Written::NotAppended(_)));
    }
}
