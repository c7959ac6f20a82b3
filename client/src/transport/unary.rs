//! Unary calls beside the stream, on the same connection.

use std::sync::Arc;

use ringfence_core::ClusterId;
use tokio::sync::oneshot;
use tonic::{Code, Response, Status};

use crate::clock::Moment;
use crate::transport::connection::describe;
use crate::transport::credential::Channel;
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};
use crate::transport::retry::{self, Meaning};
use crate::transport::{Transport, trace};

impl CallError {
    /// Only a status that carries our own details says what became of the request.
    pub(crate) fn of_status(status: &Status) -> Self {
        match Refusal::from_status(status) {
            Some(refusal) => match retry::meaning(&refusal) {
                Meaning::Final => Self::Refused(Box::new(refusal)),
                Meaning::NotDone => Self::Unavailable {
                    why: refusal.message,
                },
                Meaning::Open => Self::Unknown {
                    why: refusal.message,
                },
            },
            None => Self::Unknown {
                why: describe(status),
            },
        }
    }
}

/// The channel to the current endpoint; waits for one until the deadline.
pub(crate) async fn channel(transport: &Transport, deadline: Moment) -> Result<Channel, CallError> {
    let mut current = transport.link.current();
    let connected = async move {
        let current = current.wait_for(Option::is_some).await.ok()?;
        current.as_ref().map(|current| current.channel.clone())
    };
    let channel = crate::sync::select! {
        channel = connected => channel,
        () = transport.options.clock.sleep_until(deadline) => None,
    };
    channel.ok_or_else(|| CallError::Unavailable {
        why: transport
            .link
            .last_error()
            .unwrap_or_else(|| "no connection before the deadline".into()),
    })
}

/// Calls until there is an answer, within the request timeout.
///
/// A call that its caller has dropped is not tried again, but it is not taken back either: that would
/// reset its stream, and a server takes many resets of streams that it has not accepted yet for an
/// attack and ends the connection.
pub(crate) async fn call<T, F, Fut>(transport: &Arc<Transport>, call: F) -> Result<T, CallError>
where
    T: Send + 'static,
    F: Fn(Channel) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<T>, Status>> + Send + 'static,
{
    let within = transport.caller_in_trace();
    let (reply, answer) = oneshot::channel();
    let caller = Arc::clone(transport);
    let calling = async move {
        let (transport, mut reply) = (caller, reply);
        if let Some(answer) = until_answered(&transport, call, &mut reply).await {
            // A caller that has gone does not want the answer.
            reply.send(answer).ok();
        }
    };
    // On the client's thread, so that the caller's executor need not be tokio's, and so that a
    // dropped caller does not reset the stream.
    drop(transport.thread.spawn(trace::within(within, calling)));
    answer.await.unwrap_or_else(|_| Err(CallError::stopped()))
}

/// The answer, or `None` if no caller waits for it any more.
async fn until_answered<T, F, Fut>(
    transport: &Arc<Transport>,
    call: F,
    reply: &mut oneshot::Sender<Result<T, CallError>>,
) -> Option<Result<T, CallError>>
where
    F: Fn(Channel) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let deadline = transport.deadline();
    let sleep_until = |moment| transport.options.clock.sleep_until(moment);
    let mut tries = 0;
    let mut maybe_done = None;
    let meant = transport.cluster();
    loop {
        let channel = crate::sync::select! {
            channel = channel(transport, deadline) => channel,
            () = reply.closed() => return None,
        };
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => return Some(Err(maybe_done.unwrap_or(error))),
        };
        // Looked at behind the channel: one of another cluster is there only once that one is known.
        if let Some(other) = transport
            .cluster()
            .filter(|now| meant.is_some_and(|it| it != *now))
        {
            return Some(Err(
                maybe_done.unwrap_or_else(|| other_cluster(meant, other))
            ));
        }
        let status = crate::sync::select! {
            answer = call(channel) => match answer {
                Ok(response) => return Some(Ok(response.into_inner())),
                Err(status) => status,
            },
            () = abandoned(transport, reply) => return None,
            () = sleep_until(deadline) => {
                let why = "no reply before the deadline".into();
                return Some(Err(CallError::Unknown { why }));
            }
        };
        let asked = Refusal::from_status(&status).and_then(|refusal| refusal.retry_after);
        let again = is_worth_repeating(&status);
        let error = CallError::of_status(&status);
        transport.note_refusal(&error);
        let error = match error {
            CallError::Refused(refusal) => {
                // What a request names may be stale because an earlier try of it was done.
                let stale = matches!(
                    refusal.reason,
                    Reason::StaleToken | Reason::StaleSettings | Reason::StaleAccess
                );
                let of_this_try = stale || !retry::covers_earlier_tries(&refusal, false);
                return Some(Err(match maybe_done {
                    Some(error) if of_this_try => error,
                    _ => CallError::Refused(refusal),
                }));
            }
            error => error,
        };
        if matches!(error, CallError::Unknown { .. }) {
            maybe_done = Some(error.clone());
        }
        let until = transport.now() + retry::pause(tries, asked);
        if !again || until >= deadline {
            return Some(Err(maybe_done.unwrap_or(error)));
        }
        crate::sync::select! {
            () = sleep_until(until) => tries += 1,
            () = reply.closed() => return None,
        }
    }
}

/// A call that was meant for the cluster that this client belonged to is not for the next one.
fn other_cluster(meant: Option<ClusterId>, now: ClusterId) -> CallError {
    let meant = meant.map(|cluster| cluster.to_string()).unwrap_or_default();
    let refusal = ringfence_proto::Refusal::cluster_changed(meant, now);
    CallError::of_status(&refusal.into())
}

/// Completes if the caller has gone and too many calls go on without theirs.
async fn abandoned<T>(transport: &Transport, reply: &mut oneshot::Sender<T>) {
    reply.closed().await;
    let Ok(_place) = transport.abandoned.try_acquire() else {
        return;
    };
    std::future::pending::<()>().await;
}

/// Whether another try could fare better. Codes that speak of the call itself, without our own
/// details, come from something that is no Ringfence server, or an older one.
fn is_worth_repeating(status: &Status) -> bool {
    match status.code() {
        Code::Unimplemented
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::DataLoss => Refusal::from_status(status).is_some(),
        _ => true,
    }
}
