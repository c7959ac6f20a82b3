//! Sessions and acquires that block.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{FencingToken, LeaseName, SessionId};
use tokio::sync::watch;

use super::{HeldLease, wait};
use crate::clock::Moment;
use crate::lease::TransferError;
use crate::lease::acquire::AcquireError;
use crate::lease::seal::Seal;
use crate::session::endings::Transferred;
use crate::session::error::{CloseError, ReleaseError};
use crate::session::handle::SessionHandle;
use crate::session::heartbeat::Heartbeat;
use crate::session::state::SessionState;

/// A session that is kept alive by the client's own thread; see [`crate::Session`]. Cheap to clone.
#[derive(Clone, Debug)]
#[must_use = "a session is closed when its last clone and its last lease are dropped"]
pub struct Session {
    inner: crate::Session,
}

/// An acquire in the making; [`Session::acquire`] begins one.
#[derive(Debug)]
#[must_use = "nothing is acquired until send()"]
pub struct Acquire {
    inner: crate::Acquire,
}

/// Takes waiting acquires back from another thread. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Stop {
    stopped: watch::Sender<bool>,
}

impl Session {
    pub(super) fn new(inner: crate::Session) -> Self {
        Self { inner }
    }

    /// The session's number; public.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.inner.id()
    }

    /// What resumes the session elsewhere; a process that has it can act for the session.
    #[must_use]
    pub fn handle(&self) -> SessionHandle {
        self.inner.handle()
    }

    /// The TTL that the cluster granted; see [`crate::Session::ttl`].
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.inner.ttl()
    }

    /// How the session stands. It can lag behind the clock by the time the client's thread needs to
    /// wake up; [`is_live`](Self::is_live) does not.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.inner.state().borrow().clone()
    }

    /// When everything that the session holds is lost, unless a keep-alive is acknowledged before.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.inner.valid_until()
    }

    /// Whether the session is neither lost nor closed. Asks the clock each time.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.inner.is_live()
    }

    /// Begins to acquire the lease `name`.
    pub fn acquire(&self, name: impl Into<String>) -> Acquire {
        Acquire {
            inner: self.inner.acquire(name),
        }
    }

    /// Promises a sign of life at least every `limit`; see [`crate::Session::heartbeat`].
    pub fn heartbeat(&self, limit: Duration) -> Heartbeat {
        self.inner.heartbeat(limit)
    }

    /// Releases a lease by its token, for a session that was resumed from its handle.
    ///
    /// # Errors
    /// See [`crate::Session::release`].
    pub fn release(&self, name: &LeaseName, token: FencingToken) -> Result<(), ReleaseError> {
        wait(self.inner.release(name, token))
    }

    /// Hands a lease over by its token, for a session that was resumed from its handle.
    ///
    /// # Errors
    /// See [`crate::Session::transfer`].
    pub fn transfer(
        &self,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
    ) -> Result<Transferred, TransferError> {
        wait(self.inner.transfer(name, token, to))
    }

    /// Ends the session and everything that it holds. Belief ends first, then the request leaves.
    ///
    /// # Errors
    /// [`CloseError`] if it is not certain that the cluster has ended it.
    pub fn close(self) -> Result<(), CloseError> {
        wait(self.inner.close())
    }

    /// Leaves the session to itself; see [`crate::Session::detach`].
    pub fn detach(self) -> SessionHandle {
        self.inner.detach()
    }

    /// The session underneath, for everything that has no method here.
    pub fn as_async(&self) -> &crate::Session {
        &self.inner
    }
}

impl Acquire {
    /// Waits in the queue for at most this long; see [`crate::Acquire::wait`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// Publishes up to 1 KiB with the grant, an address for example.
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.inner = self.inner.data(data);
        self
    }

    /// For how long no client is granted the lease if this grant ends by expiry or revoke; see
    /// [`crate::Acquire::lock_delay`].
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.inner = self.inner.lock_delay(delay);
        self
    }

    /// Seals the lease before it is reported held; see [`crate::Acquire::seal`]. The guards' futures
    /// are polled on the calling thread, outside of any runtime: those of a driver that needs one
    /// have to be spawned there, in a [`sealable_fn`](crate::sealable_fn).
    pub fn seal(mut self, seal: Seal) -> Self {
        self.inner = self.inner.seal(seal);
        self
    }

    /// Sends the acquire and blocks until the answer has come.
    ///
    /// # Errors
    /// See [`crate::Acquire::send`].
    pub fn send(self) -> Result<HeldLease, AcquireError> {
        wait(self.inner.send()).map(HeldLease::from)
    }

    /// As [`send`](Self::send), but given up when `stop` says so, from another thread for example;
    /// then it brings `None`, no grant is left behind and no client stands in the queue for it.
    ///
    /// # Errors
    /// See [`crate::Acquire::send`].
    pub fn send_unless(self, stop: &Stop) -> Result<Option<HeldLease>, AcquireError> {
        let mut stopped = stop.stopped.subscribe();
        let stopped = async {
            if stopped.wait_for(|stopped| *stopped).await.is_err() {
                // `stop` is borrowed, so its sender is there.
                pending::<()>().await;
            }
        };
        wait(async {
            tokio::select! {
                biased;
                () = stopped => Ok(None),
                lease = self.inner.send() => lease.map(|lease| Some(lease.into())),
            }
        })
    }
}

impl Stop {
    /// One that has not been used yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stopped: watch::Sender::new(false),
        }
    }

    /// Gives up every acquire that was or is sent with it, for ever.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
