//! The way of a command into the log: stamped and written here if this node leads, handed to the
//! leader once if it does not, held for a while if no node leads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::raft::ClientWriteResult;
use ringfence_core::{Outcome, Rejection};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::leader::term::{LeaderTerm, Route, Written, classify};
use crate::network::forward::{Answer, CallBody, Failed};
use crate::platform::clock;
use crate::spans::proposal::Proposed;
use crate::spans::{OpenSpan, Serving, SpanKind};
use crate::types::entry_size::NotAdmitted;
use crate::types::reply::{Applied, LeaderHint, ProposeError, RETRY_LATER, Reply};
use crate::types::type_config::{CommittedLeaderId, FnResponder, TypeConfig};

/// The most proposals that wait on one node to be written or forwarded.
pub const PROPOSALS_QUEUED_MAX: usize = 65_536;
/// The most proposals taken from the queue at once.
const BATCH: usize = 1_024;
/// How long a proposal waits before it is tried again after a refusal that left no trace.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Where a proposal comes from, which decides whether it may be forwarded and retried.
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
    /// The command, encoded; at most what [`entry_size`](crate::types::entry_size) allows once stamped.
    pub(crate) command: Bytes,
    pub(crate) reply: Reply<Applied>,
    pub(crate) origin: Origin,
    /// Until when it waits for a leader, on [`clock::since_boot`].
    pub(crate) deadline: Duration,
    /// The last refusal, if it was refused before.
    pub(crate) refusal: Option<ProposeError>,
    /// It was refused a moment ago and must not be tried again at once.
    pub(crate) rests: bool,
    /// The span of the call that proposes it, if that is recorded.
    pub(crate) span: Option<Arc<OpenSpan>>,
}

/// The queue into the dispatcher, [`PROPOSALS_QUEUED_MAX`] long.
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
        let refusal = ProposeError::NotDone {
            why,
            leader,
            retry_after: Some(RETRY_LATER),
        };
        if pending.origin == Origin::Peer || clock::since_boot() >= pending.deadline {
            pending.reply.send(Err(refusal));
            return;
        }
        pending.refusal = Some(refusal);
        pending.rests = true;
        self.submit(pending);
    }
}

/// Takes proposals from the queue and sends each on its way.
pub(crate) struct Dispatcher {
    pub(crate) proposals: Proposals,
    pub(crate) pending: mpsc::Receiver<Pending>,
    pub(crate) route: watch::Receiver<Route>,
}

impl Dispatcher {
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut waiting: VecDeque<Pending> = VecDeque::new();
        // One shared retry timer. If each new proposal restarted it, a steady stream of proposals
        // would keep the refused ones from ever being retried.
        let mut again = tokio::time::interval(RETRY_AFTER);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = waiting.len() < PROPOSALS_QUEUED_MAX;
            tokio::select! {
                // While `waiting` is full the queue is left to fill up: its bound then refuses new
                // proposals at `submit`, where the caller still learns that nothing was done.
                taken = self.pending.recv_many(&mut batch, BATCH), if room => {
                    if taken == 0 {
                        return;
                    }
                    // Yield once so that concurrent proposers can join this batch.
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
                    waiting.iter_mut().for_each(|pending| pending.rests = false);
                }
            }
            // Read after the wait: a route that changed while this task slept is the one to use. A
            // proposal sent on an older route fails without a trace and is retried.
            let route = self.route.borrow_and_update().clone();
            waiting.extend(batch.drain(..));
            self.send_on(&route, &mut waiting).await;
        }
    }

    /// Sends on what can be; what cannot stays in `waiting` until its deadline.
    async fn send_on(&self, route: &Route, waiting: &mut VecDeque<Pending>) {
        // One pass over what waits now: what goes back to the end is looked at in the next round.
        for _ in 0..waiting.len() {
            let Some(pending) = waiting.pop_front() else {
                return;
            };
            match route {
                Route::Leader(leading) if !pending.rests => {
                    self.write(leading, pending).await;
                }
                Route::Follower(forwarder) if !pending.rests && pending.origin == Origin::Here => {
                    let proposals = self.proposals.clone();
                    let body = CallBody::Propose(pending.command.clone());
                    let span = pending.span.as_ref();
                    let asking = span.and_then(|span| forwarding(span, forwarder.node_id()));
                    let within = asking.as_ref().map(Serving::span).or(span);
                    let within = within.map(|span| span.traceparent());
                    forwarder.call_within(body, within, move |answer| {
                        record_answer(asking, &answer);
                        match answer {
                            Ok(answer) => pending.reply.send(answer.into_applied()),
                            Err(Failed::NotSent(why)) => proposals.refused(pending, why, None),
                            Err(Failed::Refused(ProposeError::NotDone {
                                why,
                                leader,
                                retry_after: Some(_),
                            })) => proposals.refused(pending, why, leader),
                            Err(Failed::Refused(error)) => pending.reply.send(Err(error)),
                            Err(Failed::Broken(why)) => {
                                pending.reply.send(Err(ProposeError::unknown(why)));
                            }
                        }
                    });
                }
                // A second hop could meet a leader of yet another view, and calls could circle.
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
                    let no_leader =
                        || ProposeError::not_done("no node of the cluster leads at present");
                    let error = match route {
                        Route::NoLeader => no_leader(),
                        // It rests between two tries: the leader's own words say why.
                        Route::Leader(_) | Route::Follower(_) => {
                            pending.refusal.unwrap_or_else(no_leader)
                        }
                    };
                    pending.reply.send(Err(error));
                }
                _ => waiting.push_back(pending),
            }
        }
    }

    async fn write(&self, leading: &Arc<LeaderTerm>, pending: Pending) {
        match leading.admit(&pending.command) {
            Ok(()) => {}
            Err(NotAdmitted::ForNow(why)) => return self.proposals.refused(pending, why, None),
            Err(error @ NotAdmitted::ForGood(_)) => {
                return pending.reply.send(Err(error.into()));
            }
        }
        let proposal = leading.stamp(&pending.command);
        let proposals = self.proposals.clone();
        let recorded = pending.span.as_ref().map(Proposed::now);
        let responder = FnResponder(Box::new(move |result: ClientWriteResult<TypeConfig>| {
            let written = classify(result);
            if let Some(recorded) = recorded {
                record_written(recorded, &written);
            }
            match written {
                Written::Applied(Applied {
                    outcome: Outcome::Rejected(Rejection::NotReady),
                    ..
                }) => {
                    // It is in the log, but the state rejects everything before the term's
                    // first entry, so it had no effect and may be proposed again.
                    proposals.refused(pending, "the term is not open yet".to_owned(), None);
                }
                Written::Applied(applied) => pending.reply.send(Ok(applied)),
                Written::NotAppended(why) => proposals.refused(pending, why, None),
                Written::Unknown(why) => pending.reply.send(Err(ProposeError::unknown(why))),
            }
        }));
        // Names the term: if leadership was lost and regained since `leading` was read, the entry is
        // refused instead of being logged with a time from the older term's reading.
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

/// The name of the call that a follower hands a command on by.
pub(crate) const FORWARD: &str = "ringfence.raft.v1.Peers/Forward";

/// Begins the span of a command that is handed to the leader.
fn forwarding(span: &Arc<OpenSpan>, leader: u64) -> Option<Serving> {
    let asking = span.child(SpanKind::Client, FORWARD)?;
    asking.span().note("rpc.system.name", "grpc");
    asking.span().note("rpc.method", FORWARD);
    asking.span().note("ringfence.leader.id", leader);
    Some(asking)
}

fn record_answer(asking: Option<Serving>, answer: &Result<Answer, Failed>) {
    let Some(asking) = asking else { return };
    let error = match answer {
        Ok(_) => None,
        Err(Failed::NotSent(_)) => Some("not_sent"),
        Err(Failed::Refused(_)) => Some("refused"),
        Err(Failed::Broken(_)) => Some("broken"),
    };
    end_forward(asking, error);
}

/// Ends the span of a command that is handed to the leader, on either side: with the code of gRPC that says
/// the most of `error`.
pub(crate) fn end_forward(serving: Serving, error: Option<&'static str>) {
    let code = match error {
        None => "OK",
        Some("unknown" | "broken") => "UNKNOWN",
        Some("fault") => "INTERNAL",
        Some(_) => "UNAVAILABLE",
    };
    serving.span().note("rpc.response.status_code", code);
    match error {
        None => serving.end(),
        Some(error) => serving.fail(error),
    }
}

fn record_written(recorded: Proposed, written: &Written) {
    match written {
        Written::Applied(applied) => recorded.applied(applied.index),
        Written::NotAppended(_) => recorded.failed("not_appended"),
        Written::Unknown(_) => recorded.failed("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::network::forward::Forwarder;
    use crate::network::{Caller, Transport};
    use crate::store::identity::Seat;
    use crate::types::incarnation::Incarnation;
    use crate::types::type_config::Peer;

    fn dispatcher() -> (Proposals, Dispatcher, watch::Sender<Route>) {
        let (proposals, pending) = Proposals::new();
        let route = watch::Sender::new(Route::NoLeader);
        let dispatcher = Dispatcher {
            proposals: proposals.clone(),
            pending,
            route: route.subscribe(),
        };
        (proposals, dispatcher, route)
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
            refusal: None,
            rests: false,
            span: None,
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
        let (proposals, dispatcher, _route) = dispatcher();
        let dispatcher = crate::platform::runtime::spawn(dispatcher.run());
        let refused = Arc::new(AtomicUsize::new(0));
        // What waits in the dispatcher, what waits before it, and what it has just taken.
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
        dispatcher.abort();
    }

    #[tokio::test]
    async fn a_refused_proposal_is_tried_again_while_others_keep_coming() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = forwarder(listener.local_addr().unwrap().to_string());
        let (proposals, dispatcher, route) = dispatcher();
        route.send_replace(Route::Follower(forwarder));
        let dispatcher = crate::platform::runtime::spawn(dispatcher.run());
        proposals.submit(pending(Origin::Here, drop));
        let busy = crate::platform::runtime::spawn(async move {
            loop {
                proposals.submit(pending(Origin::Peer, drop));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        // A peer that connects is rejected, so each connection is one more attempt.
        let attempts = async {
            for _ in 0..50 {
                drop(listener.accept().await.unwrap());
            }
        };
        let tried = tokio::time::timeout(Duration::from_secs(10), attempts).await;
        busy.abort();
        dispatcher.abort();
        assert!(tried.is_ok(), "it was not tried again");
    }
}
