//! The multiplexed stream: one reader, one writer, no task per request.
//!
//! It reads any stream of messages: gRPC's in the binary, that of a simulated network in the
//! simulation. The reader submits each frame with a closure that pushes the reply into the stream's outbox.
//! When too much is under way it stops reading, and the client's window fills.

mod frames;
mod replies;

use std::sync::Arc;

use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::Context;
use super::keep_alive::Turn;
use super::malformed::name_malformed_status;
use super::outbox::Stalled;
use crate::clients::Account;
use replies::{Outbox, outbox};

pub use replies::{AnswerObserver, Outgoing};

/// Service `ringfence.v1.Connection`.
pub struct ConnectionService {
    context: Context,
}

impl ConnectionService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }
}

#[tonic::async_trait]
impl v1::connection_server::Connection for ConnectionService {
    type StreamStream = Outgoing;

    async fn stream(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Outgoing>, Status> {
        let account = self.context.account(&request);
        let outgoing = serve(&self.context, account, request.into_inner(), None)?;
        Ok(Response::new(outgoing))
    }
}

/// Serves a stream on the connection with this account: greets its client, and answers what it asks
/// until it ends the stream, drops the answers, or this node stops.
///
/// The work runs in tasks of the caller's place.
///
/// # Errors
/// [`Refusal`] if this node belongs to no cluster yet.
pub fn serve<S>(
    context: &Context,
    account: Arc<Account>,
    incoming: S,
    observer: Option<Arc<dyn AnswerObserver>>,
) -> Result<Outgoing, Refusal>
where
    S: Stream<Item = Result<v1::ClientMessage, Status>> + Send + Unpin + 'static,
{
    let greeting = greeting(context)?;
    let (outbox, outgoing) = outbox(account, observer);
    outbox.tell(Body::Greeting(greeting));
    let open = context.metrics.stream_opened();
    let context = context.clone();
    ringfence_raft::spawn(async move {
        read(&context, incoming, &outbox).await;
        drop(open);
    });
    Ok(outgoing)
}

fn greeting(context: &Context) -> Result<v1::Greeting, Refusal> {
    let (cluster, time) = context.cluster()?;
    let status = context.node.status();
    let leader = status.leader;
    Ok(v1::Greeting {
        cluster_id: wire::cluster_id_to_wire(&cluster),
        node_id: status.node_id.unwrap_or_default(),
        cluster_time_ms: time.0,
        leader_id: leader.as_ref().map_or(0, |leader| leader.node_id),
        leader_client_address: leader
            .map(|leader| leader.client_address)
            .unwrap_or_default(),
        term: status.term,
    })
}

/// Reads the stream until the client ends it, or breaks it, or this node stops.
async fn read<S>(context: &Context, mut incoming: S, outbox: &Outbox)
where
    S: Stream<Item = Result<v1::ClientMessage, Status>> + Unpin,
{
    let mut turn = Turn::default();
    loop {
        let next = async {
            let place = outbox.place().await?;
            Ok::<_, Stalled>((place, incoming.next().await))
        };
        let next = tokio::select! {
            biased;
            () = context.stopped() => return say_goodbye(context, outbox),
            () = outbox.closed() => return,
            next = next => next,
        };
        let Ok((place, message)) = next else {
            return;
        };
        let frames = match message {
            Some(Ok(message)) => message.frames,
            // The client has nothing more to ask; what is under way is still answered.
            None => return,
            Some(Err(status)) => return outbox.end(name_malformed_status(status)),
        };
        if frames.len() > wire::MESSAGE_FRAMES_MAX {
            let allowed = format!("at most {} in one message", wire::MESSAGE_FRAMES_MAX);
            let refusal = Refusal::invalid("frames", frames.len(), allowed);
            return outbox.end(refusal.into());
        }
        match frames::submit(context, outbox, place, &mut turn, frames).await {
            Ok(()) => {}
            Err(frames::Unfit::Refused(refusal)) => return outbox.end(refusal.into()),
            Err(frames::Unfit::Stalled) => return,
        }
    }
}

/// What is under way is still answered; what waits has to be asked for elsewhere.
fn say_goodbye(context: &Context, outbox: &Outbox) {
    let leader = context.node.status().leader;
    let leader_client_address = leader
        .map(|leader| leader.client_address)
        .unwrap_or_default();
    outbox.tell(Body::GoingAway(v1::GoingAway {
        leader_client_address,
    }));
    outbox.waits().forget_all();
}
