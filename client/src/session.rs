//! Sessions: a client's liveness contract with the cluster.
//!
//! From below: `inner` is what the client knows of one session: its `window`, its `grant`s and
//! `losses`, its `request_numbers`, and a `heartbeat_timer` for each promised heartbeat. `endings` are
//! grants and requests that were given up here but may still be in force. `client_inner` has the table
//! of all sessions and the endings; `keepalive` renews the sessions. The `client`, set up by `builder`,
//! is a `client_inner` and its thread. On top `open` makes sessions (also for a `pod`, and from a
//! `handle`), `heartbeat` makes renewal depend on the application, and `shutdown` ends them. `state`,
//! `loss`, `unsealed` and `error` are what callers see.

pub(crate) mod builder;
pub(crate) mod client;
pub(crate) mod client_inner;
pub(crate) mod endings;
pub(crate) mod error;
pub(crate) mod grant;
pub(crate) mod handle;
pub(crate) mod heartbeat;
pub(crate) mod heartbeat_timer;
pub(crate) mod inner;
pub(crate) mod keepalive;
pub(crate) mod loss;
pub(crate) mod losses;
pub(crate) mod open;
pub(crate) mod pod;
pub(crate) mod request_numbers;
pub(crate) mod shutdown;
pub(crate) mod state;
pub(crate) mod ttl;
pub(crate) mod unsealed;
pub(crate) mod window;

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_proto::v1::{CloseRequest, client_frame};
use tokio::sync::watch;

use crate::clock::Moment;
use crate::session::client::Client;
use crate::session::error::{CloseError, ReleaseError};
use crate::session::handle::SessionHandle;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::session::state::SessionState;
use crate::transport::calls::ReplyMode;
use crate::transport::error::CallError;

/// What a session is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How long the session outlives its last keep-alive, in whole milliseconds; within the
    /// cluster's bounds, normally 1 s to 5 min. 15 s by default.
    pub ttl: Duration,
    /// Who the holder is, for people; at most 255 bytes without control characters. Empty by
    /// default.
    pub identity: String,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(15),
            identity: String::new(),
        }
    }
}

/// A session that is kept alive by the client's own thread. Cheap to clone.
///
/// When its last clone and its last [`HeldLease`](crate::HeldLease) are dropped it is closed in the
/// background; a resumed one is then only kept alive no longer.
#[derive(Clone, Debug)]
#[must_use = "a session is closed when its last clone and its last lease are dropped"]
pub struct Session {
    pub(crate) guard: Arc<SessionGuard>,
}

/// Keeps a session open and the client running.
pub(crate) struct SessionGuard {
    pub(crate) client: Client,
    pub(crate) session: Arc<SessionInner>,
    /// Opened by this client, which therefore closes it.
    pub(crate) ours: bool,
}

impl Session {
    /// The session's number; public.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.guard.session.id()
    }

    /// What resumes the session elsewhere; a program that has it can act for the session.
    ///
    /// A process that ends a grant by this handle (a release or transfer by token, a close) ends
    /// this process's belief in it no sooner than this process hears of it. From this call on each
    /// acknowledged keep-alive is followed by a question about every lease held here, so that is
    /// within a third of the TTL and two round trips. Until then there can be two believers: only a
    /// process that knows that no other one works under the lease should end it.
    #[must_use]
    pub fn handle(&self) -> SessionHandle {
        self.guard.session.mark_shared();
        self.guard.session.handle()
    }

    /// The TTL that the cluster granted; it may differ from the one that was requested. For a
    /// session bound to a Pod, the greatest duration in milliseconds that fits in 64 bits.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.guard.session.ttl()
    }

    /// How the session stands, now and at each change. What it shows can lag behind the clock by
    /// the time the client's thread needs to wake up; [`is_live`](Self::is_live) does not.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<SessionState> {
        self.guard.session.state()
    }

    /// When everything that the session holds is lost, unless a keep-alive is acknowledged before.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.guard.session.valid_until()
    }

    /// Whether the session is neither lost nor closed. Asks the clock each time.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.guard.session.loss().is_none()
    }

    /// Ends the session and everything that it holds. Belief ends first, then the request leaves,
    /// also in other attachments of this client. Dropping the future does not stop it.
    ///
    /// # Errors
    /// [`CloseError`] if it is not certain that the cluster has ended it.
    pub async fn close(self) -> Result<(), CloseError> {
        let session = &self.guard.session;
        session.lose(&Loss::Closed);
        let guard = Arc::clone(&self.guard);
        let closing = session.transport.thread.spawn(async move {
            let deadline = guard.session.transport.deadline();
            let closed = guard.client.close(&guard.session, deadline).await;
            drop(guard);
            closed
        });
        match closing.await {
            Ok(closed) => closed.map_err(CloseError),
            Err(_) => Err(CloseError(CallError::stopped())),
        }
    }

    /// Leaves the session to itself: nothing is kept alive, closed or released any more, and this
    /// process believes in none of its leases. It ends by its TTL unless another client keeps it
    /// alive with the handle returned.
    pub fn detach(self) -> SessionHandle {
        self.guard.session.lose(&Loss::Detached);
        self.handle()
    }
}

impl SessionGuard {
    /// Releases by name and token. The request goes on in the background if it is not answered in
    /// time, or if the caller does not wait; the session stays open meanwhile.
    pub(crate) async fn release(
        self: &Arc<Self>,
        name: &LeaseName,
        token: FencingToken,
    ) -> Result<(), ReleaseError> {
        let endings = &self.client.inner.endings;
        let keep = Arc::clone(self);
        let released = endings.release(&self.session, name, token, keep).await;
        released.map_err(ReleaseError::Call)
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if !self.ours {
            self.session.lose(&Loss::Detached);
        } else if self.session.lose(&Loss::Closed) {
            let session = Arc::clone(&self.session);
            // It keeps the thread running until the cluster has answered.
            let client = self.client.clone();
            drop(self.session.transport.thread.spawn(async move {
                let deadline = client.now() + session.ttl();
                if let Err(error) = client.close(&session, deadline).await {
                    tracing::debug!(session = %session.id(), %error, "not closed; it will expire");
                }
            }));
        }
    }
}

impl std::fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.session.id())
    }
}

impl Client {
    /// Sends the end of a session that is lost here.
    pub(crate) async fn close(
        &self,
        session: &SessionInner,
        deadline: Moment,
    ) -> Result<(), CallError> {
        let request = CloseRequest {
            session: Some(session.handle().to_wire()),
        };
        let body = client_frame::Body::Close(request);
        let transport = &self.inner.transport;
        transport.call(body, ReplyMode::Prompt, deadline).await?;
        self.inner.endings.session_over(session.id());
        Ok(())
    }
}
