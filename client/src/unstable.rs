//! Raw gRPC for Ringfence's own programs and tests, behind the feature `unstable`.
//!
//! **Nothing here is promised.** What is in this module follows the generated code and the gRPC
//! library of the version at hand: it changes, or goes, with any release, a patch release too.
//! Programs that need a call which the client does not have should ask for it, or generate their own
//! code from the protocol's `.proto` files, which are stable.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::ClusterId;
use ringfence_proto::v1::{client_frame, server_frame};
use tonic::{Response, Status};

use crate::session::client::Client;
use crate::transport::calls::ReplyMode;
pub use crate::transport::credential::{Channel, Credential};
use crate::transport::driver::on_thread;
use crate::transport::error::CallError;
use crate::transport::refusal::Refusal;
use crate::transport::unary;

/// The longest message that a client takes, in bytes.
pub const MESSAGE_BYTES_MAX: usize = crate::transport::connection::MESSAGE_BYTES_MAX;

/// Sends one request over the client's stream and waits at most `timeout` for its reply. It is
/// repeated unchanged, so with the same request number, as long as its outcome is open: every
/// request that a frame can carry is safe to repeat.
///
/// # Errors
/// See [`CallError`].
pub async fn request(
    client: &Client,
    body: client_frame::Body,
    timeout: Duration,
) -> Result<server_frame::Body, CallError> {
    let waits = matches!(&body, client_frame::Body::Acquire(ask) if ask.wait_ms.is_some());
    let mode = if waits {
        ReplyMode::Waiting
    } else {
        ReplyMode::Prompt
    };
    let transport = &client.inner.transport;
    let deadline = transport.now() + timeout;
    Ok(transport.call(body, mode, deadline).await?.body)
}

/// Makes a unary call on the current connection, and repeats it while the cluster is unavailable or
/// its outcome unknown, within the client's request timeout. For calls that are harmless to repeat,
/// as all outside sessions are: they name the token or index that they act on.
///
/// # Errors
/// See [`CallError`].
pub async fn unary<T, F, Fut>(client: &Client, call: F) -> Result<T, CallError>
where
    T: Send + 'static,
    F: Fn(Channel) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<T>, Status>> + Send + 'static,
{
    unary::call(&client.inner.transport, call).await
}

/// The cluster that the client belongs to, once a node has greeted it.
#[must_use]
pub fn cluster(client: &Client) -> Option<ClusterId> {
    client.inner.transport.cluster()
}

/// Why the client's sessions are not kept alive: the refusal of the last keep-alive, or of the stream
/// for it, if that was for who the client is. `None` once a keep-alive is acknowledged again.
#[must_use]
pub fn keep_alive_refusal(client: &Client) -> Option<Refusal> {
    let credential = &client.inner.transport.options.credential;
    credential.keep_alive_refusal()
}

/// The connection to the current endpoint, shared with the stream; waits until there is one. It does
/// not follow the leader automatically: ask again after a failure, or use `unary`.
///
/// # Errors
/// [`CallError::Unavailable`] if there is none within the request timeout.
pub async fn channel(client: &Client) -> Result<Channel, CallError> {
    let transport = Arc::clone(&client.inner.transport);
    on_thread(&client.inner.transport.thread, async move {
        unary::channel(&transport, transport.deadline()).await
    })
    .await
}
