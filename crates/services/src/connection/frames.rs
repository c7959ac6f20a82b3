//! The frames of one message: each is submitted at once; its reads share one look at the log.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use prost::Message;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1};
use ringfence_raft::Serving;
use tokio::sync::OwnedSemaphorePermit;

use super::super::keep_alive::{Demand, Rest, Turn};
use super::super::outbox::Stalled;
use super::super::proposals::Proposal;
use super::super::reads::Query;
use super::super::{Context, acquire, hinted, keep_alive, not_logged, pod_of};
use super::replies::{Outbox, Place, Reply};
use crate::caller::Who;
use crate::clients::crowded;
use crate::limits::WAITS_PER_CONNECTION_MAX;
use crate::metrics::Call;
use crate::spans;
use crate::status::limit;

/// A read of a message.
enum Read {
    Get(Reply, v1::GetRequest),
    Check(Reply, v1::CheckRequest),
}

/// Why a stream ends.
pub(super) enum Unfit {
    /// The client does not keep to the protocol, and no reply could tell it so.
    Refused(Refusal),
    /// It reads nothing; its connection is closed.
    Stalled,
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Stalled> for Unfit {
    fn from(Stalled: Stalled) -> Self {
        Self::Stalled
    }
}

/// Submits all frames of a message; there is a place for the first reply. An error ends the stream.
pub(super) async fn submit(
    context: &Context,
    outbox: &Outbox,
    who: &Who,
    place: Place,
    turn: &mut Turn,
    frames: Vec<v1::ClientFrame>,
) -> Result<(), Unfit> {
    let mut room = match waits_for_room(&frames) {
        true => {
            let room = outbox.room_for_message(memory(&frames));
            Some(room.ok_or_else(crowded)?)
        }
        false => None,
    };
    let mut place = Some(place);
    let mut reads = Vec::new();
    let rated = context.rated(who);
    for v1::ClientFrame {
        id,
        body,
        traceparent,
    } in frames
    {
        if id == 0 {
            let allowed = "a number of the client's choice, not 0";
            return Err(Refusal::invalid("frames.id", id, allowed).into());
        }
        let serving = spans::frame(context.node.spans(), body.as_ref(), &traceparent);
        // What a holder asks beyond its rate is no reason to let its leases end.
        let is_keep_alive = matches!(body, Some(Ask::KeepAlive(_)));
        if !is_keep_alive && let Err(refusal) = rated.request() {
            let reply = outbox.reply(place.take(), id);
            let reply = meanwhile(context, who, &mut reads, reply).await?;
            reply.within(serving).send(None, Err(refusal));
            continue;
        }
        if let Some(Ask::Acquire(request)) = &body
            && request.wait_ms.is_some()
        {
            let submitted = submit_wait(context, outbox, who, id, body, serving);
            meanwhile(context, who, &mut reads, submitted).await?;
            continue;
        }
        let reply = outbox.reply(place.take(), id);
        let reply = meanwhile(context, who, &mut reads, reply).await?;
        let mut reply = reply.within(serving);
        match body {
            Some(Ask::Open(request)) => propose(context, outbox, who, reply, request, Body::Open),
            Some(Ask::Close(request)) => propose(context, outbox, who, reply, request, Body::Close),
            Some(Ask::Cancel(request)) => {
                propose(context, outbox, who, reply, request, Body::Cancel);
            }
            Some(Ask::Release(request)) => {
                propose(context, outbox, who, reply, request, Body::Release);
            }
            Some(Ask::Transfer(request)) => {
                propose(context, outbox, who, reply, request, Body::Transfer);
            }
            Some(Ask::Acquire(request)) => submit_acquire(context, outbox, who, reply, request),
            Some(Ask::KeepAlive(request)) => {
                let under_way = match Demand::of(&request) {
                    Some(demand) => {
                        // The frames behind it are counted until it is their turn.
                        let counted = room.as_mut().map(|room| room.split(demand.message));
                        let under_way = async {
                            outbox.grow(&mut reply, counted, demand.under_way).await?;
                            turn.takes(demand.named).await;
                            Ok::<_, Stalled>(outbox.keep_alive(demand.named).await)
                        };
                        Some(meanwhile(context, who, &mut reads, under_way).await?)
                    }
                    // Refused as a whole, at once.
                    None => None,
                };
                let Rest { named, pause } =
                    submit_keep_alive(context, who, outbox, reply, request, under_way);
                meanwhile(context, who, &mut reads, outbox.rest(named, pause)).await;
            }
            Some(Ask::Get(request)) => reads.push(Read::Get(reply, request)),
            Some(Ask::Check(request)) => reads.push(Read::Check(reply, request)),
            None => {
                let allowed = "one of the requests that this version knows";
                reply.send(None, Err(Refusal::missing("frames.body", allowed)));
            }
        }
    }
    begin(context, who, &mut reads);
    Ok(())
}

/// Does the next step of a message. If it has to wait, the reads before it are answered meanwhile: it
/// may wait for the room that their replies hold.
async fn meanwhile<T>(
    context: &Context,
    who: &Who,
    reads: &mut Vec<Read>,
    next: impl Future<Output = T>,
) -> T {
    let mut next = pin!(next);
    if let Poll::Ready(done) = poll_fn(|task| Poll::Ready(next.as_mut().poll(task))).await {
        return done;
    }
    if !planted(Bug::ReadsHeldBack) {
        begin(context, who, reads);
    }
    next.await
}

/// Has these reads answered.
fn begin(context: &Context, who: &Who, reads: &mut Vec<Read>) {
    if reads.is_empty() {
        return;
    }
    let (context, who) = (context.clone(), who.clone());
    let reads = std::mem::take(reads);
    ringfence_raft::spawn(async move { answer_reads(&context, &who, reads).await });
}

/// Whether the replies to these may need more than the one place that there is.
fn waits_for_room(frames: &[v1::ClientFrame]) -> bool {
    match frames {
        [] => false,
        [frame] => matches!(frame.body, Some(Ask::KeepAlive(_))),
        _ => true,
    }
}

/// What frames take in memory, about.
fn memory(frames: &[v1::ClientFrame]) -> usize {
    let each = |frame: &v1::ClientFrame| match &frame.body {
        Some(Ask::KeepAlive(request)) => keep_alive::memory_of_request(request),
        _ => frame.encoded_len(),
    };
    size_of_val(frames) + frames.iter().map(each).sum::<usize>()
}

async fn submit_wait(
    context: &Context,
    outbox: &Outbox,
    who: &Who,
    id: u64,
    body: Option<Ask>,
    serving: Option<Serving>,
) -> Result<(), Stalled> {
    let Some(Ask::Acquire(request)) = body else {
        return Ok(());
    };
    match outbox.late_reply(id) {
        Some(reply) => submit_acquire(context, outbox, who, reply.within(serving), request),
        None => {
            let advice = "open another connection, or wait for fewer leases";
            let refusal = limit("waits_per_connection", WAITS_PER_CONNECTION_MAX, advice);
            let reply = outbox.reply(None, id).await?.within(serving);
            reply.send(None, Err(refusal));
        }
    }
    Ok(())
}

fn submit_acquire(
    context: &Context,
    outbox: &Outbox,
    who: &Who,
    reply: Reply,
    request: v1::AcquireRequest,
) {
    let _of_this = reply.enter();
    let answering = context.clone();
    acquire::submit(
        context,
        outbox.connection(),
        outbox.waits(),
        who,
        request,
        move |index, answer| {
            let answer = answering.answered(Call::Acquire, answer);
            reply.send(index, answer.map(Body::Acquire));
        },
    );
}

fn propose<P: Proposal>(
    context: &Context,
    outbox: &Outbox,
    who: &Who,
    reply: Reply,
    request: P,
    body: impl FnOnce(P::Answer) -> Body + Send + 'static,
) {
    let _of_this = reply.enter();
    let metrics = context.metrics.clone();
    let command = request.command();
    let command = command.and_then(|command| context.asked(who, outbox.connection(), command));
    match command {
        Ok(command) => {
            let (node, pod) = (context.node.clone(), pod_of(&command));
            context.node.submit(command, move |applied| {
                let index = applied.as_ref().ok().map(|applied| applied.index);
                let answer = applied
                    .map_err(|error| not_logged(pod.as_ref(), error))
                    .and_then(|applied| P::answer(applied, &node))
                    .map_err(|refusal| hinted(&node, refusal));
                metrics.answered(P::CALL, &answer);
                reply.send(index, answer.map(body));
            });
        }
        Err(refusal) => {
            let answer = Err(refusal);
            metrics.answered(P::CALL, &answer);
            reply.send(None, answer.map(body));
        }
    }
}

fn submit_keep_alive(
    context: &Context,
    who: &Who,
    outbox: &Outbox,
    reply: Reply,
    request: v1::KeepAliveRequest,
    under_way: Option<OwnedSemaphorePermit>,
) -> Rest {
    keep_alive::submit(context, who, outbox.connection(), request, move |answer| {
        drop(under_way);
        reply.send(None, answer.map(Body::KeepAlive));
    })
}

/// Answers the reads of a message: all linearizable ones wait once.
async fn answer_reads(context: &Context, who: &Who, reads: Vec<Read>) {
    let mut barrier = None;
    for read in reads {
        match read {
            Read::Get(reply, request) => {
                let (index, answer) = look(context, who, &reply, &mut barrier, request).await;
                let answer = context.answered(Call::Get, answer);
                reply.send(index, answer.map(Body::Get));
            }
            Read::Check(reply, request) => {
                let (index, answer) = look(context, who, &reply, &mut barrier, request).await;
                let answer = context.answered(Call::Check, answer);
                reply.send(index, answer.map(Body::Check));
            }
        }
    }
}

/// The answer to a read, and the index of the state that it comes from.
async fn look<Q: Query>(
    context: &Context,
    who: &Who,
    reply: &Reply,
    barrier: &mut Option<Result<Duration, Refusal>>,
    query: Q,
) -> (Option<u64>, Result<Q::Answer, Refusal>) {
    let ready = async {
        let (asked, max_staleness) = query.asked()?;
        if let Some(_of_this) = reply.enter() {
            Q::note(&asked);
        }
        let age = match (max_staleness, &barrier) {
            (None, Some(passed)) => passed.clone()?,
            (None, None) => barrier.insert(context.ready_to_read(None).await).clone()?,
            (Some(_), _) => context.ready_to_read(max_staleness).await?,
        };
        Ok::<_, Refusal>((asked, age))
    };
    match ready.await {
        Ok((asked, age)) => {
            let (index, answer) = context.look::<Q>(who, asked, age);
            (Some(index), answer)
        }
        Err(refusal) => (None, Err(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_proto::wire::KEEP_ALIVE_SESSIONS_MAX;
    use tokio_stream::StreamExt;

    use super::super::replies::outbox;
    use super::*;
    use crate::alone::{alone, within};
    use crate::clients::{Account, Pool};

    fn get(id: u64) -> v1::ClientFrame {
        let request = v1::GetRequest {
            name: "lease/1".to_owned(),
            ..v1::GetRequest::default()
        };
        v1::ClientFrame {
            id,
            body: Some(Ask::Get(request)),
            ..Default::default()
        }
    }

    fn keep_alive(id: u64, sessions: usize) -> v1::ClientFrame {
        let handle = v1::SessionHandle {
            session: u64::MAX,
            secret: vec![7; 16].into(),
        };
        let request = v1::KeepAliveRequest {
            id,
            sessions: vec![handle; sessions],
            acknowledged: Vec::new(),
        };
        v1::ClientFrame {
            id,
            body: Some(Ask::KeepAlive(request)),
            ..Default::default()
        }
    }

    /// Others hold all that connections have in common, and this client reads every reply. Nothing of
    /// a message may wait for room that only the message holds: after a while the connection would be
    /// closed, with its keep-alives.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_message_waits_for_no_room_that_it_holds_itself() {
        let alone = alone().await;
        let gets = |count| (1..=count).map(get).collect::<Vec<_>>();
        let mut mixed = gets(800);
        mixed.push(keep_alive(801, 8_000));
        let largest = [1, 2].map(|id| keep_alive(id, KEEP_ALIVE_SESSIONS_MAX));
        for frames in [gets(3_000), mixed, largest.to_vec()] {
            let (outbox, mut outgoing) = outbox(Account::new(Pool::empty()), None);
            let asked = frames.len();
            let submitted = async {
                let place = outbox.place().await.expect("a place");
                let mut turn = Turn::default();
                let done = submit(
                    &alone.context,
                    &outbox,
                    &Who::default(),
                    place,
                    &mut turn,
                    frames,
                )
                .await;
                assert!(done.is_ok(), "the stream ends");
            };
            let answered = async {
                let mut answered = 0;
                while answered < asked {
                    let message = outgoing.next().await.expect("a message").unwrap();
                    answered += message.frames.len();
                }
            };
            within("replies", async { tokio::join!(submitted, answered) }).await;
        }
    }
}
