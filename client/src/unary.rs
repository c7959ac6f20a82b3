//! Unary calls beside the stream, on the same connection.

use std::sync::Arc;

use ringfence_proto::refusal::Refusal;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::clock::Moment;
use crate::connection::describe;
use crate::error::CallError;
use crate::hub::Hub;
use crate::retry::{self, Meaning};

impl From<Status> for CallError {
    /// Only a status that carries our own details says what became of the request.
    fn from(status: Status) -> Self {
        match Refusal::from_status(&status) {
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
                why: describe(&status),
            },
        }
    }
}

/// The channel to the current endpoint; waits for one until the deadline.
pub(crate) async fn channel(hub: &Hub, deadline: Moment) -> Result<Channel, CallError> {
    let mut current = hub.link.current();
    let connected = async move {
        let current = current.wait_for(Option::is_some).await.ok()?;
        current.as_ref().map(|current| current.channel.clone())
    };
    let channel = tokio::select! {
        channel = connected => channel,
        () = hub.options.clock.sleep_until(deadline) => None,
    };
    channel.ok_or_else(|| CallError::Unavailable {
        why: hub
            .link
            .trouble()
            .unwrap_or_else(|| "no connection before the deadline".into()),
    })
}

/// Calls until there is an answer, within the request timeout.
pub(crate) async fn call<T, F, Fut>(hub: &Arc<Hub>, call: F) -> Result<T, CallError>
where
    T: Send + 'static,
    F: Fn(Channel) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<T>, Status>> + Send + 'static,
{
    let deadline = hub.deadline();
    let clock = Arc::clone(hub);
    let calling = async move {
        let mut tries = 0;
        let mut maybe_done = None;
        loop {
            let channel = match channel(&clock, deadline).await {
                Ok(channel) => channel,
                Err(error) => return Err(maybe_done.unwrap_or(error)),
            };
            let attempt = call(channel);
            let status = tokio::select! {
                answer = attempt => match answer {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) => status,
                },
                () = clock.options.clock.sleep_until(deadline) => {
                    let why = "no reply before the deadline".into();
                    return Err(CallError::Unknown { why });
                }
            };
            let asked = Refusal::from_status(&status).and_then(|refusal| refusal.retry_after);
            let again = is_worth_repeating(&status);
            let error = match CallError::from(status) {
                CallError::Refused(refusal) => return Err(CallError::Refused(refusal)),
                error => error,
            };
            if matches!(error, CallError::Unknown { .. }) {
                maybe_done = Some(error.clone());
            }
            let until = clock.now() + retry::pause(tries, asked);
            if !again || until >= deadline {
                return Err(maybe_done.unwrap_or(error));
            }
            clock.options.clock.sleep_until(until).await;
            tries += 1;
        }
    };
    crate::client::on_thread(hub, calling).await
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
