//! Keep-alives: one message for any number of sessions, one answer per message.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use prost::Message;
use ringfence_planted::{Bug, planted};
use ringfence_proto::wire::{KEEP_ALIVE_ACKNOWLEDGED_MAX, KEEP_ALIVE_SESSIONS_MAX};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::KeepAlive;
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::malformed::name_malformed_status;
use super::outbox::{Inbox, Outbox, Stalled, Ticket, outbox};
use super::{Context, hinted};
use crate::caller::Who;
use crate::clients::{Account, crowded};
use crate::limits::{
    KEEP_ALIVE_BYTES_PER_LOSS, KEEP_ALIVE_SESSIONS_PER_TURN, KEEP_ALIVES_PER_STREAM_MAX,
    REPLY_BYTES_EXPECTED, REPLY_BYTES_PER_SESSION, UNKNOWN_SESSION_PAUSE,
};
use crate::metrics::Call;
use crate::status::not_proposed;

/// How long a connection rests behind a keep-alive, for what of it was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// The sessions and losses that it was refused.
    pub(super) named: usize,
    /// Zero for a keep-alive of which nothing was refused.
    pub(super) pause: Duration,
}

impl Rest {
    /// What a refusal costs is little, and a flood of refusals is not.
    fn behind(named: usize) -> Self {
        let refused = u32::try_from(named).unwrap_or(u32::MAX);
        Self {
            named,
            pause: UNKNOWN_SESSION_PAUSE.saturating_mul(refused),
        }
    }
}

/// Hands keep-alives of a connection to the leader's batch; `done` gets the answer and must not block.
/// The connection has to rest then.
pub(super) fn submit(
    context: &Context,
    who: &Who,
    account: &Account,
    request: v1::KeepAliveRequest,
    done: impl FnOnce(Result<v1::KeepAliveResponse, Refusal>) + Send + 'static,
) -> Rest {
    let id = request.id;
    let metrics = context.metrics.clone();
    let asked = wire::keep_alive_from_wire(request).and_then(|asked| {
        context.admit(who)?;
        let keep_alive = KeepAlive {
            sessions: asked.sessions,
            acknowledged: asked.acknowledged,
            caller: context.proven_caller(who)?,
        };
        Ok((keep_alive, asked.malformed))
    });
    let (mut keep_alive, malformed) = match asked {
        Ok(asked) => asked,
        Err(refusal) => {
            let answer = Err(refusal);
            metrics.answered(Call::KeepAlive, &answer);
            done(answer);
            return Rest::default();
        }
    };
    let left_out = context.leave_out_unknown(who, account, &mut keep_alive);
    let rest = Rest::behind(left_out.named() + malformed.len());
    if left_out.named() > 0 && keep_alive.sessions.is_empty() {
        let answer = Err(left_out.refusal());
        metrics.answered(Call::KeepAlive, &answer);
        done(answer);
        return rest;
    }
    let sessions = keep_alive.sessions.len();
    let watch = metrics.stopwatch();
    let (asker, who) = (context.clone(), who.clone());
    context
        .node
        .submit_keep_alive(account.source(), keep_alive, move |kept| {
            if let Ok(kept) = &kept {
                metrics.renewed(sessions - kept.ended.len() - kept.untold.len(), watch);
                asker.give_back_known(&who, &left_out, kept);
            }
            let answer = kept
                .map(|mut kept| {
                    left_out.add_to(&mut kept);
                    wire::kept_alive_to_wire(id, kept.time, &kept.ended, &kept.lost, &kept.untold)
                })
                .map_err(|error| hinted(&asker.node, not_proposed(error)));
            let answer = answer.map(|answer| wire::with_malformed(answer, &malformed));
            metrics.answered(Call::KeepAlive, &answer);
            done(answer);
        });
    rest
}

/// Submits one message and waits for its answer.
pub(super) async fn once(
    context: &Context,
    account: &Arc<Account>,
    who: &Who,
    request: v1::KeepAliveRequest,
) -> Result<v1::KeepAliveResponse, Refusal> {
    // One that names more than it may is refused as a whole, and waits for nothing.
    let demand = Demand::of(&request);
    let (_room, under_way) = match demand {
        Some(demand) => {
            let bytes = demand.message + demand.under_way;
            let room = account.try_reserve(bytes).ok_or_else(crowded)?;
            (Some(room), Some(account.keep_alive(demand.named).await))
        }
        None => (None, None),
    };
    let (tell, answer) = oneshot::channel();
    let Rest { named, pause } = submit(context, who, account, request, move |answer| {
        drop(under_way);
        // An error means that the caller has given up.
        tell.send(answer).ok();
    });
    account.rest(named, pause).await;
    let lost =
        |_| Refusal::outcome_unknown("this node is stopping while a keep-alive is under way");
    answer.await.map_err(lost)?
}

/// What a stream may do until it is the others' turn.
///
/// What a client has sent is there already, up to its window, so nothing else makes a stream wait;
/// and some hundred sessions are as much work as all else in a message.
#[derive(Debug, Default)]
pub(super) struct Turn {
    named: usize,
}

impl Turn {
    /// Does the work of so many sessions and losses, and lets others go first if that is enough.
    pub(super) async fn takes(&mut self, named: usize) {
        self.named += named;
        if self.named >= KEEP_ALIVE_SESSIONS_PER_TURN {
            self.named = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// What a keep-alive takes of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Sessions and losses, each of which counts among those under way.
    pub(super) named: usize,
    /// Bytes of the message as it is read, about.
    pub(super) message: usize,
    /// Bytes of what is under way for it, and then of its answer, beside [`REPLY_BYTES_EXPECTED`].
    pub(super) under_way: usize,
}

impl Demand {
    /// What this request takes; `None` if it names more than it may. That one is refused as a whole, and
    /// must wait for nothing: on the wire it is small, and in memory it is not.
    pub(super) fn of(request: &v1::KeepAliveRequest) -> Option<Self> {
        let (sessions, losses) = (request.sessions.len(), request.acknowledged.len());
        if sessions > KEEP_ALIVE_SESSIONS_MAX || losses > KEEP_ALIVE_ACKNOWLEDGED_MAX {
            return planted(Bug::TooManySessionsWait).then_some(Self {
                named: sessions,
                message: 0,
                under_way: 0,
            });
        }
        let counted = match planted(Bug::LossesUncounted) {
            true => 0,
            false => losses,
        };
        Some(Self {
            named: sessions + counted,
            message: memory_of_request(request),
            under_way: sessions * REPLY_BYTES_PER_SESSION + counted * KEEP_ALIVE_BYTES_PER_LOSS,
        })
    }
}

/// What the request takes in memory, about; on the wire an empty handle has 2 bytes.
pub(super) fn memory_of_request(request: &v1::KeepAliveRequest) -> usize {
    request.sessions.len() * size_of::<v1::SessionHandle>()
        + request.acknowledged.len() * size_of::<v1::Acknowledged>()
        + request.encoded_len()
}

/// What an answer takes in memory beside itself, about: in Rust a small thing is much larger than
/// on the wire.
pub(super) fn memory(answer: &v1::KeepAliveResponse) -> usize {
    let lost = answer
        .lost
        .iter()
        .map(|lost| lost.grants.len())
        .sum::<usize>();
    answer.ended.len() * size_of::<v1::SessionState>()
        + answer.lost.len() * size_of::<v1::SessionLosses>()
        + lost * size_of::<v1::LostGrant>()
        + answer.untold.len() * size_of::<u64>()
        + answer.encoded_len()
}

/// What a `Sessions.KeepAlive` stream answers.
pub struct KeepAliveStream(Inbox<v1::KeepAliveResponse>);

impl Stream for KeepAliveStream {
    type Item = Result<v1::KeepAliveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(task)
    }
}

/// Serves a stream of keep-alives on the connection with this account.
pub(super) fn serve(
    context: Context,
    account: Arc<Account>,
    who: Who,
    incoming: Streaming<v1::KeepAliveRequest>,
) -> KeepAliveStream {
    let (answers, outgoing) = outbox(account, KEEP_ALIVES_PER_STREAM_MAX);
    let open = context.metrics.stream_opened();
    ringfence_raft::spawn(async move {
        read(&context, &who, incoming, &answers).await;
        drop(open);
    });
    KeepAliveStream(outgoing)
}

async fn read(
    context: &Context,
    who: &Who,
    mut incoming: Streaming<v1::KeepAliveRequest>,
    answers: &Outbox<v1::KeepAliveResponse>,
) {
    let mut turn = Turn::default();
    let mut barred = pin!(context.barred(who));
    loop {
        let next = async {
            let ticket = answers.ticket(REPLY_BYTES_EXPECTED).await?;
            Ok::<_, Stalled>((ticket, incoming.message().await))
        };
        let next = tokio::select! {
            biased;
            () = context.stopped() => return,
            () = answers.closed() => return,
            refusal = &mut barred => {
                context.metrics.denied(&refusal, true);
                return answers.end(refusal.into());
            }
            next = next => next,
        };
        let Ok((ticket, message)) = next else {
            return;
        };
        let request = match message {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(status) => return answers.end(name_malformed_status(status)),
        };
        if take(context, who, answers, &mut turn, ticket, request)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Submits one message as soon as its turn has come; what waits meanwhile is counted.
async fn take(
    context: &Context,
    who: &Who,
    answers: &Outbox<v1::KeepAliveResponse>,
    turn: &mut Turn,
    mut ticket: Ticket<v1::KeepAliveResponse>,
    request: v1::KeepAliveRequest,
) -> Result<(), Stalled> {
    let id = request.id;
    let under_way = match Demand::of(&request) {
        Some(demand) => {
            let Some(room) = answers.room_for_message(demand.message) else {
                let refused = wire::keep_alive_refused_to_wire(id, crowded());
                ticket.send(refused, REPLY_BYTES_EXPECTED);
                return Ok(());
            };
            answers
                .grow(&mut ticket, Some(room), demand.under_way)
                .await?;
            turn.takes(demand.named).await;
            Some(answers.keep_alive(demand.named).await)
        }
        None => None,
    };
    let account = answers.connection();
    let Rest { named, pause } = submit(context, who, account, request, move |answer| {
        drop(under_way);
        let answer = answer.unwrap_or_else(|refusal| wire::keep_alive_refused_to_wire(id, refusal));
        let bytes = size_of::<v1::KeepAliveResponse>() + memory(&answer);
        ticket.send(answer, bytes);
    });
    answers.rest(named, pause).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;
    use crate::alone::{Alone, alone, within};
    use crate::clients::Pool;
    use crate::limits::{BYTES_PER_CALL, KEEP_ALIVES_PER_CONNECTION_MAX};

    const SOON: Duration = Duration::from_millis(300);

    /// A message that names so many sessions and losses, each with the largest numbers.
    fn message(sessions: usize, losses: usize) -> v1::KeepAliveRequest {
        let handle = v1::SessionHandle {
            session: u64::MAX,
            secret: vec![7; 16].into(),
        };
        let loss = v1::Acknowledged {
            session: u64::MAX,
            token: i64::MAX as u64,
        };
        v1::KeepAliveRequest {
            id: 1,
            sessions: vec![handle; sessions],
            acknowledged: vec![loss; losses],
        }
    }

    /// One stream of a connection.
    struct Connection {
        pool: Arc<Pool>,
        account: Arc<Account>,
        answers: Outbox<v1::KeepAliveResponse>,
        inbox: Inbox<v1::KeepAliveResponse>,
    }

    impl Connection {
        fn new(pool: Arc<Pool>) -> Self {
            let account = Account::new(pool.clone());
            let (answers, inbox) = outbox(account.clone(), KEEP_ALIVES_PER_STREAM_MAX);
            Self {
                pool,
                account,
                answers,
                inbox,
            }
        }

        /// Takes a message as a stream does.
        async fn takes(&self, alone: &Alone, request: v1::KeepAliveRequest) {
            let ticket = self.answers.ticket(REPLY_BYTES_EXPECTED).await.unwrap();
            let mut turn = Turn::default();
            take(
                &alone.context,
                &Who::default(),
                &self.answers,
                &mut turn,
                ticket,
                request,
            )
            .await
            .expect("it does not stall");
        }

        async fn answered(&mut self) -> v1::KeepAliveResponse {
            let answer = poll_fn(|task| self.inbox.poll_next(task));
            within("answer", answer).await.unwrap().unwrap()
        }

        fn held(&self) -> usize {
            usize::try_from(self.pool.held()).unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_message_that_names_too_many_is_refused_before_it_waits() {
        let alone = alone().await;
        let mut caller = Connection::new(Pool::new());
        let most = KEEP_ALIVES_PER_CONNECTION_MAX as usize;
        let _others = caller.account.keep_alive(most).await;
        let too_many = [
            message(KEEP_ALIVE_SESSIONS_MAX + 1, 0),
            message(0, KEEP_ALIVE_ACKNOWLEDGED_MAX + 1),
        ];
        for request in too_many {
            let taken = timeout(SOON, caller.takes(&alone, request)).await;
            assert!(
                taken.is_ok(),
                "it waits, and takes 40 bytes for 2 of the wire"
            );
            let refusal = caller.answered().await.refusal.expect("a refusal");
            assert_eq!(refusal.reason(), v1::Reason::InvalidArgument, "{refusal:?}");
        }
        assert_eq!(caller.held(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_waits_for_its_turn_is_counted_until_it_is_answered() {
        let alone = alone().await;
        let most = KEEP_ALIVES_PER_CONNECTION_MAX as usize;
        for request in [message(0, 0), message(most, 0), message(0, most)] {
            let mut caller = Connection::new(Pool::new());
            let others = caller.account.keep_alive(most).await;
            let takes = memory_of_request(&request);
            {
                let taking = caller.takes(&alone, request);
                tokio::pin!(taking);
                assert!(
                    timeout(SOON, &mut taking).await.is_err(),
                    "others come first"
                );
                assert!(caller.held() >= takes, "{} of {takes}", caller.held());
                drop(others);
                taking.await;
            }
            assert_eq!(caller.answered().await.refusal, None);
            assert_eq!(caller.held(), 0);
        }
    }

    /// What stays under way is smaller than the message, but nothing may be forgotten.
    #[test]
    fn losses_under_way_count_as_sessions_do() {
        let most = KEEP_ALIVE_ACKNOWLEDGED_MAX;
        let demand = Demand::of(&message(0, most)).unwrap();
        assert_eq!(demand.named, most);
        let each = size_of::<(ringfence_core::SessionId, ringfence_core::FencingToken)>();
        assert!(demand.under_way >= most * each, "{demand:?}");
    }

    /// Others read nothing, and so hold all that connections have in common. One that keeps as many
    /// sessions alive as a message may name, and reads every answer, is not to lose them by that.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_largest_keep_alive_goes_on_whatever_others_hold() {
        let alone = alone().await;
        let mut caller = Connection::new(Pool::empty());
        let _call = caller.account.try_reserve(BYTES_PER_CALL).unwrap();
        for _ in 0..2 {
            let largest = message(KEEP_ALIVE_SESSIONS_MAX, KEEP_ALIVE_ACKNOWLEDGED_MAX);
            within("its turn", caller.takes(&alone, largest)).await;
            let answer = caller.answered().await;
            assert_eq!(answer.refusal, None);
            assert_eq!(answer.ended.len(), KEEP_ALIVE_SESSIONS_MAX);
        }
    }
}
