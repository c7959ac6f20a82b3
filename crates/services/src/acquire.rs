//! Acquires under way: each is one log entry, and for a caller that waits the end of its wait. The
//! unary call and the stream differ only in whom they tell.
//!
//! The end of a wait is only ever reported once the caller's own entry is applied: an answer that
//! came from this node's state alone would make the client believe in a keep-alive that is not
//! logged.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_core::{
    Acquired, ClusterTime, Command, Opened, Outcome, Rejection, RequestNumber, SessionId,
};
use ringfence_planted::{Bug, planted};
use ringfence_proto::refusal::reason_name;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node, WaitDone};
use tokio::sync::oneshot;

use super::Context;
use super::waits::{OwnedWaits, Waits};
use crate::caller::Who;
use crate::clients::Account;
use crate::status::{not_proposed, not_read, unexpected};

/// Receives the answer, and the index of the entry that it comes from, if it comes from one.
pub(super) trait Tell:
    FnOnce(Option<u64>, Result<v1::AcquireResponse, Refusal>) + Send + 'static
{
}

impl<F> Tell for F where
    F: FnOnce(Option<u64>, Result<v1::AcquireResponse, Refusal>) + Send + 'static
{
}

/// A request that may wait. The end of the wait may be known here before the entry's own answer
/// arrives, but it is reported only behind that.
enum State<T> {
    /// The entry is under way.
    Proposed(T),
    /// The entry is under way, and the wait is over already.
    Early(T, WaitDone),
    /// The entry is applied, and the request is in the queue.
    Queued(T, Place),
    /// It is answered.
    Answered,
}

/// One request that may wait.
struct Waiting<T> {
    context: Context,
    waits: Arc<Waits>,
    number: u64,
    state: Mutex<State<T>>,
}

/// Proposes an acquire, and tells its answer when its fate is known: with its entry, or with the end
/// of its wait. A wait that is forgotten in `waits` is dropped untold.
pub(super) fn submit<T: Tell>(
    context: &Context,
    account: &Account,
    waits: &Arc<Waits>,
    who: &Who,
    request: v1::AcquireRequest,
    tell: T,
) {
    let may_wait = request.wait_ms.is_some();
    let command = wire::acquire_from_wire(request);
    match command.and_then(|command| context.asked(who, account, command)) {
        Ok(command) if may_wait => wait(context, waits, command, tell),
        Ok(command) => acquire_now(context, command, tell),
        Err(refusal) => tell(None, Err(refusal)),
    }
}

/// Proposes an acquire that may wait.
fn wait<T: Tell>(context: &Context, waits: &Arc<Waits>, command: Command, tell: T) {
    let awaited = awaited(&command);
    let waiting = Arc::new(Waiting {
        context: context.clone(),
        waits: waits.clone(),
        number: waits.begin(),
        state: Mutex::new(State::Proposed(tell)),
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
fn acquire_now(context: &Context, command: Command, tell: impl Tell) {
    let node = context.node.clone();
    context.node.submit(command, move |applied| {
        let index = applied.as_ref().ok().map(|applied| applied.index);
        let answer = applied.map_err(not_proposed).and_then(|applied| {
            match progress(applied, None, &node) {
                Progress::Answered(answer) => answer,
                // A repeated open, whose first request asked to wait.
                Progress::Waiting(place) => {
                    let why = "the request stands in the queue, which it did not ask for";
                    Err(with_session(Refusal::outcome_unknown(why), place.opened))
                }
            }
        });
        tell(index, answer);
    });
}

impl Context {
    /// Acquires, and waits if the caller does. A caller that gives up keeps its place in the queue, and
    /// so does one whose credential ends meanwhile: that ends the wait as it ends a stream.
    pub(super) async fn acquire(
        &self,
        who: &Who,
        account: &Account,
        request: v1::AcquireRequest,
    ) -> Result<v1::AcquireResponse, Refusal> {
        let may_wait = request.wait_ms.is_some() && !planted(Bug::WaitOutlivesCredential);
        let owned = OwnedWaits::default();
        let (tell, answer) = oneshot::channel();
        submit(
            self,
            account,
            owned.waits(),
            who,
            request,
            move |_, told| {
                // An error means that the caller has given up.
                tell.send(told).ok();
            },
        );
        let mut answer = pin!(answer);
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            refusal = self.barred(who), if may_wait => return Err(barred_waiting(&refusal)),
            () = self.stopped() => {
                // An entry under way is still answered; a wait is dropped untold.
                owned.waits().forget_all();
                answer.await
            }
        };
        answer.unwrap_or_else(|_| Err(going_away()))
    }

    /// Whether this node has applied the entry at `index`; behind another node's answer it may lag
    /// a little.
    fn has_applied(&self, index: u64) -> bool {
        self.node.read(|machine| machine.index()) >= index
    }

    /// Waits until it has.
    async fn catch_up(&self, index: u64) -> Result<(), Refusal> {
        if self.has_applied(index) {
            return Ok(());
        }
        // The request is in the queue, so whatever happens here is no "not done".
        self.node
            .read_barrier()
            .await
            .map_err(|error| Refusal::outcome_unknown(not_read(error).message))
    }
}

/// The caller is no longer looked at, and the request may be in the queue. `barred` says what the
/// caller lacks: it is the reason that its next request is refused with.
fn barred_waiting(refusal: &Refusal) -> Refusal {
    let why = match refusal.metadata.get("why") {
        Some(why) => why,
        None => &refusal.message,
    };
    Refusal::outcome_unknown(format!("{why} while the request waits"))
        .with("barred", reason_name(refusal.reason))
}

/// A wait that this node cannot follow any longer.
fn going_away() -> Refusal {
    Refusal::outcome_unknown("this node is stopping while the request waits")
}

impl<T: Tell> Waiting<T> {
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
            State::Proposed(tell) if registered => *state = State::Queued(tell, place),
            State::Proposed(tell) => {
                drop(state);
                if self.context.has_applied(place.index) {
                    self.register_late(tell, place);
                } else {
                    ringfence_raft::spawn(self.clone().catch_up(tell, place));
                }
            }
            State::Early(tell, done) => {
                drop(state);
                self.settle(tell, place, done);
            }
            State::Queued(..) | State::Answered => {}
        }
    }

    /// Registers when the session is known: an inline open has none before it is applied.
    fn register_late(self: &Arc<Self>, tell: T, place: Place) {
        let (session, request) = (place.session, place.number);
        *self.lock() = State::Queued(tell, place);
        self.register(session, request);
        if let Some(done) = over_already(session, request, &self.context.node) {
            self.over(done);
        }
    }

    /// Registers when this node has applied the entry; the leader, which answered, was faster.
    async fn catch_up(self: Arc<Self>, tell: T, place: Place) {
        match self.context.catch_up(place.index).await {
            Ok(()) => self.register_late(tell, place),
            Err(refusal) => self.answer(tell, None, Err(refusal)),
        }
    }

    /// The wait is over.
    fn over(&self, done: WaitDone) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Answered) {
            State::Proposed(tell) | State::Early(tell, _) => *state = State::Early(tell, done),
            State::Queued(tell, place) => {
                drop(state);
                self.settle(tell, place, done);
            }
            State::Answered => {}
        }
    }

    fn settle(&self, tell: T, place: Place, done: WaitDone) {
        let index = Some(place.index);
        self.answer(tell, index, settled(done, place, &self.context.node));
    }

    /// Answers, whatever was known before.
    fn finish(&self, index: Option<u64>, answer: Result<v1::AcquireResponse, Refusal>) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut *state, State::Answered);
        drop(state);
        match before {
            State::Proposed(tell) | State::Early(tell, _) | State::Queued(tell, _) => {
                self.answer(tell, index, answer);
            }
            State::Answered => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while it holds the lock, so that the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, tell: T, index: Option<u64>, answer: Result<v1::AcquireResponse, Refusal>) {
        self.waits.forget(self.number);
        tell(index, answer);
    }
}

/// What an applied acquire came to.
enum Progress {
    /// It is answered.
    Answered(Result<v1::AcquireResponse, Refusal>),
    /// It is in the queue.
    Waiting(Place),
}

/// A place in a queue.
struct Place {
    /// Whose it is.
    session: SessionId,
    /// The request that waits.
    number: RequestNumber,
    /// The entry that put it there.
    index: u64,
    /// The session that the same entry opened.
    opened: Option<v1::OpenResponse>,
}

/// The request that waits if this command has to; unknown for a session not yet opened.
fn awaited(command: &Command) -> Option<(SessionId, RequestNumber)> {
    match command.bare() {
        Command::Request(request) => Some((request.session, request.number)),
        _ => None,
    }
}

/// What the applied entry means to its caller.
fn progress(
    applied: Applied,
    awaited: Option<(SessionId, RequestNumber)>,
    node: &Node,
) -> Progress {
    let Applied {
        outcome,
        index,
        time,
    } = applied;
    let (acquired, opened, awaited) = match outcome {
        Outcome::Acquired(acquired) => (acquired, None, awaited),
        Outcome::Opened(Opened {
            acquired: Some(acquired),
            session,
            ttl,
            repeated,
        }) => {
            let opened = Opened {
                session,
                ttl,
                repeated,
                acquired: None,
            };
            let opened = opened_answer(&opened, time, node);
            (
                acquired,
                Some(opened),
                Some((session, RequestNumber::FIRST)),
            )
        }
        other => return Progress::Answered(Err(unexpected(&other))),
    };
    match (acquired, awaited) {
        (Acquired::Waiting { .. }, Some((session, number))) => Progress::Waiting(Place {
            session,
            number,
            index,
            opened,
        }),
        (acquired, _) => Progress::Answered(acquired_answer(&acquired, time, opened)),
    }
}

/// What the end of a wait means to its caller.
fn settled(done: WaitDone, place: Place, node: &Node) -> Result<v1::AcquireResponse, Refusal> {
    let time = node.read(|state| state.time());
    match done {
        WaitDone::Settled(acquired) => acquired_answer(&acquired, time, place.opened),
        WaitDone::SessionGone => Err(session_gone(place.session, node)),
    }
}

/// How a wait that was registered late has ended before, if it has.
fn over_already(session: SessionId, number: RequestNumber, node: &Node) -> Option<WaitDone> {
    node.read(|machine| match machine.standing(session, number) {
        Some(Acquired::Waiting { .. }) => None,
        Some(acquired) => Some(WaitDone::Settled(acquired)),
        None if machine.session(session).is_some() => None,
        None => Some(WaitDone::SessionGone),
    })
}

/// A session that was opened.
pub(super) fn opened_answer(opened: &Opened, time: ClusterTime, node: &Node) -> v1::OpenResponse {
    match node.read(|state| state.cluster()) {
        Some(cluster) => wire::opened_to_wire(opened, time, &cluster),
        // The answer came through another node, and this one has not even seen the first entry.
        None => v1::OpenResponse {
            session: opened.session.get(),
            ttl_ms: opened.ttl.0,
            cluster_time_ms: time.0,
            cluster_id: bytes::Bytes::new(),
        },
    }
}

/// The end of an acquire that does not wait any more.
fn acquired_answer(
    acquired: &Acquired,
    time: ClusterTime,
    opened: Option<v1::OpenResponse>,
) -> Result<v1::AcquireResponse, Refusal> {
    match wire::acquired_to_wire(acquired) {
        Ok(grant) => Ok(v1::AcquireResponse {
            grant: Some(grant),
            opened,
            cluster_time_ms: time.0,
        }),
        Err(refusal) => Err(with_session(refusal, opened)),
    }
}

/// A refusal of an acquire that opened a session all the same: its client needs the number.
fn with_session(refusal: Refusal, opened: Option<v1::OpenResponse>) -> Refusal {
    match opened {
        Some(opened) => refusal
            .with("session", opened.session)
            .with("ttl_ms", opened.ttl_ms),
        None => refusal,
    }
}

/// A session that is gone while one of its requests waited. This node has applied its end.
fn session_gone(session: SessionId, node: &Node) -> Refusal {
    let cause = node.read(|machine| machine.session_end(session));
    Refusal::from_rejection(&Rejection::SessionExpired { cause }).with("session", session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, within};

    /// A client whose connection broke may ask again, without the wait of its first request.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_open_that_is_repeated_without_its_wait_tells_the_number_of_the_session() {
        let (alone, nobody) = (alone().await, Who::default());
        let account = alone.context.new_account();
        let ask = |asked| alone.context.acquire(&nobody, &account, asked);
        let asked = |open: u8, wait_ms| v1::AcquireRequest {
            open: Some(v1::OpenRequest {
                id: vec![open; 16].into(),
                secret: vec![open; 16].into(),
                identity: "holder".to_owned(),
                ..v1::OpenRequest::default()
            }),
            name: "db".to_owned(),
            wait_ms,
            ..v1::AcquireRequest::default()
        };
        let held = within("grant", ask(asked(1, None))).await;
        let holder = held.unwrap().opened.expect("a session").session;

        let first = ask(asked(2, Some(14_000)));
        let queued = within("entry", async {
            let before = alone.node.read(|machine| machine.index());
            let applied = async {
                while alone.node.read(|machine| machine.index()) == before {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                answer = first => panic!("it waits: {answer:?}"),
                () = applied => {}
            }
        });
        queued.await;

        let repeated = within("answer", ask(asked(2, None))).await;
        let refusal = repeated.expect_err("it stands in the queue");
        assert_eq!(refusal.reason, v1::Reason::OutcomeUnknown, "{refusal:?}");
        let session = refusal.metadata.get("session").expect("its number");
        assert_ne!(*session, holder.to_string());
        assert!(refusal.metadata.contains_key("ttl_ms"), "{refusal:?}");
    }
}
