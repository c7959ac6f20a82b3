//! What callers and the connection share: the calls in flight and the way onto the present stream.

use std::sync::{Arc, Mutex};

use ringfence_proto::v1::{ClientFrame, ServerFrame, client_frame};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot, watch};

use crate::clock::{Clock, Moment};
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::calls::{Answer, Calls, ReplyMode, RetryHint};
use crate::transport::credential::Channel;
use crate::transport::endpoint::Endpoint;
use crate::transport::error::CallError;

#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
}

/// The calls in flight and the current stream, behind one lock: a call is never on two streams, and
/// never on none while a stream is open.
pub(crate) struct Link {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// A timer was set that is due before the one that is waited for.
    earlier: Notify,
    current: watch::Sender<Option<Current>>,
}

#[derive(Default)]
struct State {
    calls: Calls,
    outbound: Option<UnboundedSender<ClientFrame>>,
    /// What [`Link::run_timers`] waits for.
    armed: Option<Moment>,
    last_error: Option<String>,
}

impl Transport {
    /// Sends a request and waits for its answer. Every request of a session but its keep-alives
    /// passes here, so no API can send the end of a grant that is still believed in.
    pub(crate) async fn call(
        &self,
        body: client_frame::Body,
        mode: ReplyMode,
        deadline: Moment,
    ) -> Result<Answer, CallError> {
        // A session that is believed in holds what is served, so this is there while it matters.
        if let Some(callbacks) = self.callbacks.upgrade() {
            // Before the request is queued. The next holder may be granted the lease as soon as the
            // request has arrived, and by then no task here may see the lease as held.
            callbacks.end_belief_before(&body);
        }
        let reply = self.link.call(body, mode, deadline);
        match reply.await {
            Ok(result) => result.inspect_err(|error| self.note_refusal(error)),
            Err(_) => Err(CallError::stopped()),
        }
    }
}

impl Link {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            earlier: Notify::new(),
            current: watch::Sender::new(None),
        }
    }

    /// Puts a request on the stream, or keeps it for the next one. The reply comes by the deadline
    /// at the latest.
    pub(crate) fn call(
        &self,
        body: client_frame::Body,
        mode: ReplyMode,
        deadline: Moment,
    ) -> oneshot::Receiver<Result<Answer, CallError>> {
        let (reply, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        // Read here, before the stream can have the request: the window counts from it.
        let sent = self.clock.now();
        if let Some(id) = state.calls.insert(body, mode, sent, deadline, reply) {
            state.send(id, sent);
            self.rearm(&state);
        }
        answer
    }

    /// A stream is open: everything unanswered goes onto it.
    pub(crate) fn connected(
        &self,
        endpoint: Endpoint,
        channel: Channel,
        outbound: UnboundedSender<ClientFrame>,
    ) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.outbound = Some(outbound);
        state.last_error = None;
        // In the order in which the calls were made, and under the lock: a new call cannot go onto
        // the new stream before the older ones.
        for id in state.calls.ready() {
            state.send(id, now);
        }
        drop(state);
        self.current
            .send_replace(Some(Current { endpoint, channel }));
    }

    /// The stream is gone.
    pub(crate) fn disconnected(&self, why: &str) {
        // First no caller finds this connection any more, then its calls go back to the table. The
        // other way round, a unary call could start on the broken channel.
        self.current.send_replace(None);
        let mut state = lock(&self.state);
        state.outbound = None;
        state.last_error = Some(why.to_owned());
        state.calls.stream_lost(why);
    }

    /// There is still no stream.
    pub(crate) fn unreachable(&self, why: &str) {
        let mut state = lock(&self.state);
        state.last_error = Some(why.to_owned());
        state.calls.no_stream(why);
    }

    /// What was in the way of the last attempt to get a stream.
    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.state).last_error.clone()
    }

    /// Hands replies to their callers; returns what refusals ask of the connection.
    pub(crate) fn answer(&self, frames: Vec<ServerFrame>) -> Vec<RetryHint> {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let answers = frames.into_iter();
        let hints = answers
            .filter_map(|frame| state.calls.answer(frame.id, frame.body, now))
            .collect();
        self.rearm(&state);
        hints
    }

    pub(crate) fn oldest_unanswered(&self) -> Option<Moment> {
        lock(&self.state).calls.oldest_unanswered()
    }

    /// The present connection, and each change of it.
    pub(crate) fn current(&self) -> watch::Receiver<Option<Current>> {
        self.current.subscribe()
    }

    /// Keeps deadlines and pauses, for ever.
    pub(crate) async fn run_timers(&self) {
        loop {
            let due = {
                let mut state = lock(&self.state);
                let now = self.clock.now();
                for id in state.calls.due(now) {
                    state.send(id, now);
                }
                // Stored under the lock that inserts calls: a call that is due earlier sees this
                // moment and wakes the loop; one that is inserted before was counted.
                state.armed = state.calls.next_due();
                state.armed
            };
            match due {
                None => self.earlier.notified().await,
                Some(due) => tokio::select! {
                    () = self.clock.sleep_until(due) => {}
                    () = self.earlier.notified() => {}
                },
            }
        }
    }

    fn rearm(&self, state: &State) {
        let next = state.calls.next_due();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            self.earlier.notify_one();
        }
    }
}

impl State {
    fn send(&mut self, id: u64, now: Moment) {
        let Some(outbound) = &self.outbound else {
            return;
        };
        if let Some(frame) = self.calls.send(id, now) {
            // If the stream is gone, `disconnected` is about to say so and puts the call back.
            outbound.send(frame).ok();
        }
    }
}
