//! The frames of one message: each is submitted at once; its reads share one look at the log.

use std::time::Duration;

use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1};

use super::super::proposals::Proposal;
use super::super::reads::Query;
use super::super::{Context, keep_alive};
use super::outbox::{Outbox, Reply};
use super::wait;
use crate::limits::WAITS_PER_STREAM_MAX;
use crate::metrics::Call;
use crate::status::{limit, not_proposed};

/// A read of a message.
enum Read {
    Get(Reply, v1::GetRequest),
    Check(Reply, v1::CheckRequest),
}

/// Submits all frames of a message. An error ends the stream: the client does not keep to the
/// protocol, and no reply could tell it so.
pub(super) async fn submit(
    context: &Context,
    outbox: &Outbox,
    frames: Vec<v1::ClientFrame>,
) -> Result<(), Refusal> {
    let mut reads = Vec::new();
    for v1::ClientFrame { id, body } in frames {
        if id == 0 {
            return Err(Refusal::invalid(
                "frames.id",
                id,
                "a number of the client's choice, not 0",
            ));
        }
        if let Some(Ask::Acquire(request)) = &body
            && request.wait_ms.is_some()
        {
            submit_wait(context, outbox, id, body).await;
            continue;
        }
        let reply = outbox.reply(id).await;
        match body {
            Some(Ask::Open(request)) => propose(context, reply, request, Body::Open),
            Some(Ask::Close(request)) => propose(context, reply, request, Body::Close),
            Some(Ask::Cancel(request)) => propose(context, reply, request, Body::Cancel),
            Some(Ask::Release(request)) => propose(context, reply, request, Body::Release),
            Some(Ask::Transfer(request)) => propose(context, reply, request, Body::Transfer),
            Some(Ask::Acquire(request)) => wait::acquire(context, outbox, reply, request),
            Some(Ask::KeepAlive(request)) => submit_keep_alive(context, reply, request),
            Some(Ask::Get(request)) => reads.push(Read::Get(reply, request)),
            Some(Ask::Check(request)) => reads.push(Read::Check(reply, request)),
            None => {
                let allowed = "one of the requests that this version knows";
                reply.send(Err(Refusal::missing("frames.body", allowed)));
            }
        }
    }
    if !reads.is_empty() {
        let context = context.clone();
        tokio::spawn(async move { answer_reads(&context, reads).await });
    }
    Ok(())
}

async fn submit_wait(context: &Context, outbox: &Outbox, id: u64, body: Option<Ask>) {
    let Some(Ask::Acquire(request)) = body else {
        return;
    };
    match outbox.late_reply(id) {
        Some(reply) => wait::acquire(context, outbox, reply, request),
        None => {
            let advice = "open another connection, or wait for fewer leases";
            let refusal = limit("waits_per_stream", WAITS_PER_STREAM_MAX, advice);
            outbox.reply(id).await.send(Err(refusal));
        }
    }
}

fn propose<P: Proposal>(
    context: &Context,
    reply: Reply,
    request: P,
    body: impl FnOnce(P::Answer) -> Body + Send + 'static,
) {
    let metrics = context.metrics.clone();
    let command = request.command();
    let command = command.and_then(|command| context.check(&command).map(|()| command));
    match command {
        Ok(command) => {
            let node = context.node.clone();
            context.node.submit(command, move |applied| {
                let answer = applied
                    .map_err(not_proposed)
                    .and_then(|applied| P::answer(applied, &node));
                metrics.answered(P::CALL, &answer);
                reply.send(answer.map(body));
            });
        }
        Err(refusal) => {
            let answer = Err(refusal);
            metrics.answered(P::CALL, &answer);
            reply.send(answer.map(body));
        }
    }
}

fn submit_keep_alive(context: &Context, reply: Reply, request: v1::KeepAliveRequest) {
    keep_alive::submit(context, request, move |answer| {
        reply.send(answer.map(Body::KeepAlive));
    });
}

/// Answers the reads of a message: all linearizable ones wait once.
async fn answer_reads(context: &Context, reads: Vec<Read>) {
    let mut barrier = None;
    for read in reads {
        match read {
            Read::Get(reply, request) => {
                let answer = look(context, &mut barrier, request).await;
                context.metrics.answered(Call::Get, &answer);
                reply.send(answer.map(Body::Get));
            }
            Read::Check(reply, request) => {
                let answer = look(context, &mut barrier, request).await;
                context.metrics.answered(Call::Check, &answer);
                reply.send(answer.map(Body::Check));
            }
        }
    }
}

async fn look<Q: Query>(
    context: &Context,
    barrier: &mut Option<Result<Duration, Refusal>>,
    query: Q,
) -> Result<Q::Answer, Refusal> {
    let (asked, max_staleness) = query.asked()?;
    let age = match (max_staleness, &barrier) {
        (None, Some(passed)) => passed.clone()?,
        (None, None) => barrier.insert(context.ready_to_read(None).await).clone()?,
        (Some(_), _) => context.ready_to_read(max_staleness).await?,
    };
    context.look::<Q>(asked, age)
}
