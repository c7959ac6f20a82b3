//! Keep-alives: one message for any number of sessions, one answer per message.

use std::sync::Arc;

use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::KeepAlive;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use super::Context;
use super::malformed::name_malformed_status;
use crate::limits::KEEP_ALIVES_PER_STREAM_MAX;
use crate::metrics::Call;
use crate::status::not_proposed;

/// Hands keep-alives to the leader's batch; `done` gets the answer and must not block.
pub(super) fn submit(
    context: &Context,
    request: v1::KeepAliveRequest,
    done: impl FnOnce(Result<v1::KeepAliveResponse, Refusal>) + Send + 'static,
) {
    let id = request.id;
    let metrics = context.metrics.clone();
    let keep_alive = match wire::keep_alive_from_wire(request) {
        Ok(wire::KeepAlive {
            sessions,
            acknowledged,
        }) => KeepAlive {
            sessions,
            acknowledged,
        },
        Err(refusal) => {
            let answer = Err(refusal);
            metrics.answered(Call::KeepAlive, &answer);
            return done(answer);
        }
    };
    let sessions = keep_alive.sessions.len();
    let watch = metrics.stopwatch();
    context.node.submit_keep_alive(keep_alive, move |kept| {
        let answer = kept
            .map(|kept| {
                wire::kept_alive_to_wire(id, kept.time, &kept.ended, &kept.lost, &kept.untold)
            })
            .map_err(not_proposed);
        if let Ok(answer) = &answer {
            metrics.renewed(sessions - answer.ended.len() - answer.untold.len(), watch);
        }
        metrics.answered(Call::KeepAlive, &answer);
        done(answer);
    });
}

type Answer = Result<v1::KeepAliveResponse, Status>;

/// What a `Sessions.KeepAlive` stream answers.
pub(crate) type KeepAliveStream = UnboundedReceiverStream<Answer>;

/// Serves a stream of keep-alives.
pub(super) fn serve(
    context: Context,
    incoming: Streaming<v1::KeepAliveRequest>,
) -> KeepAliveStream {
    let (answers, outgoing): (UnboundedSender<Answer>, UnboundedReceiver<Answer>) =
        unbounded_channel();
    let open = context.metrics.stream_opened();
    tokio::spawn(async move {
        read(&context, incoming, &answers).await;
        drop(open);
    });
    UnboundedReceiverStream::new(outgoing)
}

async fn read(
    context: &Context,
    mut incoming: Streaming<v1::KeepAliveRequest>,
    answers: &UnboundedSender<Answer>,
) {
    let places = Arc::new(Semaphore::new(KEEP_ALIVES_PER_STREAM_MAX));
    loop {
        let place = places
            .clone()
            .acquire_owned()
            .await
            .expect("nobody closes this semaphore");
        let message = tokio::select! {
            biased;
            () = context.stopped() => Ok(None),
            () = answers.closed() => return,
            message = incoming.message() => message,
        };
        let request = match message {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(status) => {
                drop(answers.send(Err(name_malformed_status(status))));
                return;
            }
        };
        let (id, answers) = (request.id, answers.clone());
        submit(context, request, move |answer| {
            let answer =
                answer.unwrap_or_else(|refusal| wire::keep_alive_refused_to_wire(id, refusal));
            // An error means that the client is gone; then nobody needs this.
            drop(answers.send(Ok(answer)));
            drop(place);
        });
    }
}
