//! What callers and the connection share: the calls in flight and the way onto the present stream, where
//! whatever waits is sent as one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_core::Stream;
use ringfence_proto::v1::{ClientFrame, ClientMessage, ServerFrame, client_frame};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot, watch};

use crate::clock::{Clock, Moment};
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::calls::{Answer, Calls, ReplyMode, RetryHint};
use crate::transport::credential::Channel;
use crate::transport::endpoint::Endpoint;
use crate::transport::error::CallError;
use crate::transport::trace::TraceParent;

/// The most frames in one message; the server refuses more.
const FRAMES_MAX: usize = 4_096;
/// Messages are cut before they have more bytes than this; the server refuses more than 1 MiB. One
/// frame has at most a tenth of it.
const BYTES_MAX: usize = 900 * 1024;

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
        let within = self.caller_in_trace();
        let reply = self.link.call(body, within, mode, deadline);
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
        within: Option<TraceParent>,
        mode: ReplyMode,
        deadline: Moment,
    ) -> oneshot::Receiver<Result<Answer, CallError>> {
        let (reply, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        // Read here, before the stream can have the request: the window counts from it.
        let sent = self.clock.now();
        if let Some(id) = state
            .calls
            .insert(body, within, mode, sent, deadline, reply)
        {
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
                Some(due) => crate::sync::select! {
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

/// Drains the channel of frames into messages. The channel is not bounded in itself: each frame in
/// it belongs to a call, and those are.
pub(crate) struct Outbound {
    frames: UnboundedReceiver<ClientFrame>,
    drained: Vec<ClientFrame>,
    waiting: VecDeque<ClientFrame>,
    /// Others had their turn since the first frame of the next message came.
    gathered: bool,
}

impl Outbound {
    pub(crate) fn new(frames: UnboundedReceiver<ClientFrame>) -> Self {
        Self {
            frames,
            drained: Vec::new(),
            waiting: VecDeque::new(),
            gathered: false,
        }
    }

    fn message(&mut self) -> ClientMessage {
        let mut bytes = 0;
        let fitting = self.waiting.iter().take(FRAMES_MAX).take_while(|frame| {
            bytes += bytes_at_most(frame);
            bytes <= BYTES_MAX
        });
        let count = fitting.count();
        // A frame that is too large alone still has to go: the server will say so.
        ClientMessage {
            frames: self.waiting.drain(..count.max(1)).collect(),
        }
    }
}

impl Stream for Outbound {
    type Item = ClientMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        let this = &mut *self;
        if this.waiting.len() < FRAMES_MAX {
            let received = this
                .frames
                .poll_recv_many(cx, &mut this.drained, FRAMES_MAX);
            this.waiting.extend(this.drained.drain(..));
            match received {
                _ if !this.waiting.is_empty() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(_) => return Poll::Ready(None),
            }
        }
        // Callers that are about to ask run first: one message, one write for all of them.
        if !std::mem::replace(&mut this.gathered, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.gathered = false;
        Poll::Ready(Some(this.message()))
    }
}

/// An upper bound of a frame's encoded size.
fn bytes_at_most(frame: &ClientFrame) -> usize {
    /// Tags, lengths, numbers, a session handle and a place in a trace.
    const FIXED: usize = 192;
    /// A session handle or an acknowledged loss in a keep-alive.
    const EACH: usize = 48;
    let variable = match &frame.body {
        Some(client_frame::Body::Open(open)) => open.identity.len(),
        Some(client_frame::Body::KeepAlive(request)) => {
            EACH * (request.sessions.len() + request.acknowledged.len())
        }
        Some(client_frame::Body::Acquire(request)) => {
            let open = request
                .open
                .as_ref()
                .map_or(0, |open| FIXED + open.identity.len());
            request.name.len() + request.data.len() + open
        }
        Some(client_frame::Body::Release(request)) => request.name.len(),
        Some(client_frame::Body::Transfer(request)) => request.name.len(),
        Some(client_frame::Body::Get(request)) => request.name.len(),
        Some(client_frame::Body::Check(request)) => request.name.len(),
        Some(client_frame::Body::Close(_) | client_frame::Body::Cancel(_)) | None => 0,
    };
    FIXED + variable
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use ringfence_proto::v1::{AcquireRequest, GetRequest};
    use tokio::sync::mpsc;

    use super::*;

    fn get(id: u64) -> ClientFrame {
        ClientFrame {
            id,
            body: Some(client_frame::Body::Get(GetRequest::default())),
            ..ClientFrame::default()
        }
    }

    fn drain(frames: Vec<ClientFrame>) -> Vec<usize> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for frame in frames {
            assert!(sender.send(frame).is_ok());
        }
        drop(sender);
        let mut messages = Outbound::new(receiver).map(|message| message.frames.len());
        let mut counts = Vec::new();
        let mut in_vain = 0;
        // Others have their turn before each message.
        while in_vain < 2 {
            match messages.next().now_or_never() {
                Some(Some(count)) => {
                    counts.push(count);
                    in_vain = 0;
                }
                Some(None) => break,
                None => in_vain += 1,
            }
        }
        counts
    }

    #[test]
    fn what_waits_together_goes_together() {
        assert_eq!(drain((1..=100).map(get).collect()), [100]);
    }

    #[test]
    fn a_message_keeps_the_limits_of_the_server() {
        let counts = drain((1..=5_000).map(get).collect());
        assert_eq!(counts.iter().sum::<usize>(), 5_000);
        assert!(counts.iter().all(|&count| count <= FRAMES_MAX));

        let data = vec![0; 100 * 1024].into();
        let large = AcquireRequest {
            data,
            ..AcquireRequest::default()
        };
        let frame = ClientFrame {
            id: 1,
            body: Some(client_frame::Body::Acquire(large)),
            ..ClientFrame::default()
        };
        let counts = drain(vec![frame; 20]);
        assert_eq!(counts.iter().sum::<usize>(), 20);
        assert!(counts.iter().all(|&count| count <= 9), "{counts:?}");
    }
}
