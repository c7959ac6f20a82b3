//! An acquire on the stream: its reply comes from the log entry, or from the end of its wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_core::{Command, RequestNumber, SessionId};
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::WaitDone;

use super::super::Context;
use super::super::acquire::{Place, Progress, awaited, over_already, progress, settled};
use super::replies::{Outbox, Reply, Waits};
use crate::metrics::Call;
use crate::status::not_proposed;

/// A request that may wait. The end of the wait may be known here before the entry's own answer
/// arrives, but it is told only behind that.
enum State {
    /// The entry is under way.
    Proposed(Reply),
    /// The entry is under way, and the wait is over already.
    Early(Reply, WaitDone),
    /// The entry is applied, and the request stands in the queue.
    Queued(Reply, Place),
    /// It is answered.
    Answered,
}

/// One waiting request of a stream.
struct Waiting {
    context: Context,
    waits: Arc<Waits>,
    number: u64,
    state: Mutex<State>,
}

/// Proposes an acquire that may wait, and answers it when its fate is known.
pub(super) fn acquire(
    context: &Context,
    outbox: &Outbox,
    reply: Reply,
    request: v1::AcquireRequest,
) {
    let waits = request.wait_ms.is_some();
    let command = match wire::acquire_from_wire(request) {
        Ok(command) => command,
        Err(refusal) => return answer(context, reply, None, Err(refusal)),
    };
    if !waits {
        return acquire_now(context, reply, command);
    }
    let awaited = awaited(&command);
    let waits = outbox.waits().clone();
    let number = waits.begin();
    let state = Mutex::new(State::Proposed(reply));
    let waiting = Arc::new(Waiting {
        context: context.clone(),
        waits,
        number,
        state,
    });
    if let Some((session, request)) = awaited {
        // Registered before the entry exists, so that its end cannot be missed.
        waiting.register(session, request);
    }
    let node = context.node.clone();
    context.node.submit(command, move |applied| match applied {
        Ok(applied) => {
            let index = applied.index;
            let progress = progress(applied, awaited, &node);
            waiting.applied(index, progress, awaited.is_some());
        }
        Err(error) => waiting.finish(None, Err(not_proposed(error))),
    });
}

/// Proposes an acquire that is answered with its entry.
fn acquire_now(context: &Context, reply: Reply, command: Command) {
    let (node, context) = (&context.node, context.clone());
    node.submit(command, move |applied| {
        let index = applied.as_ref().ok().map(|applied| applied.index);
        let told = applied.map_err(not_proposed).and_then(|applied| {
            match progress(applied, None, &context.node) {
                Progress::Answered(told) => told,
                Progress::Waiting(_) => {
                    let why = "the request stands in the queue, which it did not ask for";
                    Err(Refusal::outcome_unknown(why))
                }
            }
        });
        answer(&context, reply, index, told);
    });
}

fn answer(
    context: &Context,
    reply: Reply,
    index: Option<u64>,
    answer: Result<v1::AcquireResponse, Refusal>,
) {
    let answer = context.answered(Call::Acquire, answer);
    reply.send(index, answer.map(Body::Acquire));
}

impl Waiting {
    fn register(self: &Arc<Self>, session: SessionId, request: RequestNumber) {
        let waiting = self.clone();
        let over = Box::new(move |done| waiting.over(done));
        let key = self.context.node.on_settled(session, request, over);
        self.waits.keep(self.number, key);
    }

    /// The entry is applied.
    fn applied(self: &Arc<Self>, index: u64, progress: Progress, registered: bool) {
        let place = match progress {
            Progress::Answered(answer) => return self.finish(Some(index), answer),
            Progress::Waiting(place) => place,
        };
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Answered) {
            State::Proposed(reply) if registered => *state = State::Queued(reply, place),
            State::Proposed(reply) => {
                drop(state);
                if self.context.has_applied(place.index) {
                    self.register_late(reply, place);
                } else {
                    ringfence_raft::spawn(self.clone().catch_up(reply, place));
                }
            }
            State::Early(reply, done) => {
                drop(state);
                self.tell(
                    reply,
                    Some(place.index),
                    settled(done, place, &self.context.node),
                );
            }
            State::Queued(..) | State::Answered => {}
        }
    }

    /// Registers when the session is known: an inline open has none before it is applied.
    fn register_late(self: &Arc<Self>, reply: Reply, place: Place) {
        let (session, request) = (place.session, place.number);
        *self.lock() = State::Queued(reply, place);
        self.register(session, request);
        if let Some(done) = over_already(session, request, &self.context.node) {
            self.over(done);
        }
    }

    /// Registers when this node has applied the entry; the leader, which answered, was faster.
    async fn catch_up(self: Arc<Self>, reply: Reply, place: Place) {
        match self.context.catch_up(place.index).await {
            Ok(()) => self.register_late(reply, place),
            Err(refusal) => self.tell(reply, None, Err(refusal)),
        }
    }

    /// The wait is over.
    fn over(&self, done: WaitDone) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Answered) {
            State::Proposed(reply) | State::Early(reply, _) => *state = State::Early(reply, done),
            State::Queued(reply, place) => {
                drop(state);
                self.tell(
                    reply,
                    Some(place.index),
                    settled(done, place, &self.context.node),
                );
            }
            State::Answered => {}
        }
    }

    /// Answers, whatever was known before.
    fn finish(&self, index: Option<u64>, answer: Result<v1::AcquireResponse, Refusal>) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut *state, State::Answered);
        drop(state);
        match before {
            State::Proposed(reply) | State::Early(reply, _) | State::Queued(reply, _) => {
                self.tell(reply, index, answer);
            }
            State::Answered => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, so that the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, reply: Reply, index: Option<u64>, told: Result<v1::AcquireResponse, Refusal>) {
        self.waits.forget(self.number);
        answer(&self.context, reply, index, told);
    }
}
