//! The multiplexed stream: one reader, one writer, no task per request.
//!
//! It reads any stream of messages: gRPC's in the binary, that of a simulated network in the
//! simulation. The reader submits each frame with a closure that pushes the reply into the stream's
//! outbox. When too much is under way it stops reading, and the client's window fills.

mod frames;
mod replies;

use std::pin::pin;
use std::sync::Arc;

use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::Context;
use super::keep_alive::Turn;
use super::malformed::name_malformed_status;
use super::outbox::Stalled;
use crate::caller::{Identified, Who};
use crate::clients::Account;
use crate::limits::ACCESS_LOOK_INTERVAL;
use crate::waits::Waits;
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
        let who = request.extensions().get::<Identified>().cloned();
        let outgoing = serve(&self.context, account, who, request.into_inner(), None)?;
        Ok(Response::new(outgoing))
    }
}

/// Serves a stream that `who` has begun on the connection with this account: greets its client, and answers what it asks
/// until it ends the stream, drops the answers, or this node stops.
///
/// The work runs in tasks of the caller's place.
///
/// # Errors
/// [`Refusal`] if this node belongs to no cluster yet, or if the caller is banned.
pub fn serve<S>(
    context: &Context,
    account: Arc<Account>,
    who: Option<Identified>,
    incoming: S,
    observer: Option<Arc<dyn AnswerObserver>>,
) -> Result<Outgoing, Refusal>
where
    S: Stream<Item = Result<v1::ClientMessage, Status>> + Send + Unpin + 'static,
{
    let who = Who::new(who);
    context
        .admit(&who)
        .inspect_err(|refusal| context.metrics.denied(refusal, true))?;
    let greeting = greeting(context)?;
    let (outbox, outgoing) = outbox(account, observer);
    outbox.tell(Body::Greeting(greeting));
    let open = context.metrics.stream_opened();
    let context = context.clone();
    ringfence_raft::spawn(async move {
        read(&context, &who, incoming, &outbox).await;
        let waits = outbox.waits().clone();
        // It ends with its last answer.
        drop(outbox);
        outlast(&context, &who, &waits).await;
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
async fn read<S>(context: &Context, who: &Who, mut incoming: S, outbox: &Outbox)
where
    S: Stream<Item = Result<v1::ClientMessage, Status>> + Unpin,
{
    let mut turn = Turn::default();
    let mut barred = pin!(context.barred(who));
    loop {
        let next = async {
            let place = outbox.place().await?;
            Ok::<_, Stalled>((place, incoming.next().await))
        };
        let next = tokio::select! {
            biased;
            () = context.stopped() => return say_goodbye(context, outbox),
            () = outbox.closed() => return,
            refusal = &mut barred => return deny(context, outbox, refusal),
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
        if let Err(refusal) = context.admit(who) {
            return deny(context, outbox, refusal);
        }
        match frames::submit(context, outbox, who, place, &mut turn, frames).await {
            Ok(()) => {}
            Err(frames::Unfit::Refused(refusal)) => return outbox.end(refusal.into()),
            Err(frames::Unfit::Stalled) => return,
        }
    }
}

/// The client asks nothing more, and some of its requests wait yet: not for longer than it may, nor
/// than this node runs.
async fn outlast(context: &Context, who: &Who, waits: &Waits) {
    let mut barred = pin!(context.barred(who));
    while waits.any() {
        tokio::select! {
            refusal = &mut barred => {
                context.metrics.denied(&refusal, true);
                return waits.forget_all();
            }
            () = context.stopped() => return waits.forget_all(),
            () = tokio::time::sleep(ACCESS_LOOK_INTERVAL) => {}
        }
    }
}

/// The caller is looked at no more: its stream ends.
fn deny(context: &Context, outbox: &Outbox, refusal: Refusal) {
    context.metrics.denied(&refusal, true);
    outbox.waits().forget_all();
    outbox.end(refusal.into());
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use ringfence_core::{AccessChange, Verb};
    use ringfence_proto::v1::client_frame::Body as Ask;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;
    use crate::alone::{alone, proven, within};

    #[derive(Default)]
    struct Seen(Mutex<Vec<(u64, u64)>>);

    impl AnswerObserver for Seen {
        fn answered_by(&self, id: u64, index: u64) {
            self.0.lock().unwrap().push((id, index));
        }
    }

    async fn next(outgoing: &mut Outgoing) -> (u64, Body) {
        let message = within("message", outgoing.next()).await;
        let mut frames = message.expect("an open stream").unwrap().frames;
        assert_eq!(frames.len(), 1, "one frame at a time is asked for");
        let frame = frames.remove(0);
        (frame.id, frame.body.expect("a body"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn any_stream_is_served_and_an_observer_learns_which_entries_answer() {
        let alone = alone().await;
        let (session, _) = alone.open(1).await;
        let opened = alone.node.read(|machine| machine.index());
        let seen = Arc::new(Seen::default());
        let (ask, asked) = mpsc::unbounded_channel();
        let incoming = UnboundedReceiverStream::new(asked);
        let account = alone.context.new_account();
        let mut outgoing =
            serve(&alone.context, account, None, incoming, Some(seen.clone())).unwrap();
        assert!(matches!(next(&mut outgoing).await, (0, Body::Greeting(_))));

        let acquire = v1::AcquireRequest {
            session: Some(v1::SessionHandle {
                session: session.get(),
                secret: vec![1; 16].into(),
            }),
            number: 1,
            lowest: 1,
            name: "db".to_owned(),
            wait_ms: Some(1_000),
            ..v1::AcquireRequest::default()
        };
        let get = v1::GetRequest {
            name: "db".to_owned(),
            ..v1::GetRequest::default()
        };
        let absent = v1::GetRequest {
            name: "nobody".to_owned(),
            ..v1::GetRequest::default()
        };
        let asks = [Ask::Acquire(acquire), Ask::Get(get), Ask::Get(absent)];
        let mut told = None;
        for (id, body) in (7..).zip(asks) {
            let body = Some(body);
            let frames = vec![v1::ClientFrame {
                id,
                body,
                ..Default::default()
            }];
            ask.send(Ok(v1::ClientMessage { frames })).unwrap();
            let (answered, body) = next(&mut outgoing).await;
            assert_eq!(answered, id, "{body:?}");
            if let Body::Get(reply) = body {
                told = reply.at.map(|at| at.index);
            }
        }
        let seen = seen.0.lock().unwrap().clone();
        let [(7, granted), (8, read), (9, absent)] = seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(
            Some(read),
            told,
            "a read comes from the state that it names"
        );
        assert!(granted > opened && granted <= read && read <= absent);

        drop(ask);
        assert!(within("end", outgoing.next()).await.is_none());
    }

    fn acquire(session: u64, number: u64) -> v1::AcquireRequest {
        v1::AcquireRequest {
            session: Some(v1::SessionHandle {
                session,
                secret: vec![u8::try_from(session).unwrap(); 16].into(),
            }),
            number,
            lowest: 1,
            name: "db".to_owned(),
            wait_ms: Some(100_000),
            ..v1::AcquireRequest::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_waits_on_a_stream_ends_with_the_ban_of_its_caller() {
        for (principal, asks_more) in [
            ("cert:cn:a", true),
            ("cert:cn:a", false),
            ("anonymous", true),
        ] {
            let alone = alone().await;
            let identified = proven(principal);
            let principal = identified.principal.clone();
            alone.enforce().await;
            alone.allow("*", Verb::Acquire, "*").await;
            let who = Who::new(Some(identified.clone()));
            for session in 1..=2 {
                alone.open_as(&who, session).await;
            }
            let account = alone.context.new_account();
            let held = alone.context.acquire(&who, &account, acquire(1, 1)).await;
            held.expect("it is free");

            let (ask, asked) = mpsc::unbounded_channel();
            let incoming = UnboundedReceiverStream::new(asked);
            let account = alone.context.new_account();
            let mut outgoing =
                serve(&alone.context, account, Some(identified), incoming, None).unwrap();
            assert!(matches!(next(&mut outgoing).await, (0, Body::Greeting(_))));
            let body = Some(Ask::Acquire(acquire(2, 1)));
            let frames = vec![v1::ClientFrame {
                id: 7,
                body,
                ..Default::default()
            }];
            ask.send(Ok(v1::ClientMessage { frames })).unwrap();
            let waiting = async {
                while alone.node.read(|machine| machine.summary().waiters) == 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            within("a place in the queue", waiting).await;
            let ask = asks_more.then_some(ask);
            alone.change(vec![AccessChange::Ban(principal)]).await;
            let answer = within("the end", outgoing.next()).await;
            assert!(!matches!(answer, Some(Ok(_))), "{answer:?}");
            drop(ask);
        }
    }
}
