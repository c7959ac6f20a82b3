//! The client for programs without an async runtime (feature `blocking`).
//!
//! A thin layer over the rest of this crate: each method waits for the future of the same name, on
//! the calling thread. Nothing is weaker for it. Keep-alives and timers run on the client's own
//! thread as ever, belief ends by the same clock, and what is dropped is released in the background.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ringfence_client::SessionOptions;
//! use ringfence_client::blocking::Client;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect(["10.0.0.1:7420", "10.0.0.2:7420"])?;
//!     let session = client.open_session(SessionOptions::default())?;
//!     let lease = session.acquire("billing/ledger").wait(Duration::from_secs(30)).send()?;
//!     // Ends the process if the lease is lost while the work blocks.
//!     lease.on_lost(|loss| if !loss.is_own_doing() { std::process::abort() })?;
//!
//!     for _invoice in 0..100 {
//!         // Asks the clock: no step begins behind the end of belief.
//!         lease.ensure()?;
//!         // … a write that shows `lease.fence()` to its guard …
//!     }
//!     lease.release()?;
//!     Ok(())
//! }
//! ```
//!
//! A thread cannot be dropped as a future can. So there is no `run` that ends work in its middle:
//! work asks [`HeldLease::ensure`] between its steps, and [`HeldLease::on_lost`] tells a caller
//! that can stop it. What is under way at that moment is the guard's to refuse.
//!
//! Do not call these methods inside async code: they block the executor. The client itself does not
//! suffer by that, since it does not run there.

mod lease;
mod session;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::clock::Moment;
use crate::session::SessionOptions;
use crate::session::builder::ClientBuilder;
use crate::session::error::{AttachError, OpenError};
use crate::session::handle::SessionHandle;
use crate::transport::error::ConnectError;

pub use lease::HeldLease;
pub use session::{Acquire, Session, Stop};

/// A connection to a cluster. Cheap to clone; all clones share one stream and one thread.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl Client {
    /// Connects to a cluster with the standard settings.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn connect(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, ConnectError> {
        Self::set_up(crate::Client::builder().endpoints(endpoints))
    }

    /// Connects as the builder says; [`crate::Client::builder`] begins one.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn set_up(builder: ClientBuilder) -> Result<Self, ConnectError> {
        let inner = wait(builder.connect())?;
        Ok(Self { inner })
    }

    /// Opens a session and keeps it alive until it is closed, left, or lost.
    ///
    /// # Errors
    /// See [`crate::Client::open_session`].
    pub fn open_session(&self, options: SessionOptions) -> Result<Session, OpenError> {
        wait(self.inner.open_session(options)).map(Session::new)
    }

    /// Resumes a session from its handle; see [`crate::Client::attach`].
    ///
    /// # Errors
    /// [`AttachError`] if the session has ended, the secret is wrong, or another principal opened it.
    pub fn attach(&self, handle: SessionHandle, ttl: Duration) -> Result<Session, AttachError> {
        wait(self.inner.attach(handle, ttl)).map(Session::new)
    }

    /// The present moment on the clock that windows are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.inner.now()
    }

    /// The client underneath, for everything that has no method here: [`wait`] for its futures.
    #[must_use]
    pub fn as_async(&self) -> &crate::Client {
        &self.inner
    }
}

impl From<crate::Client> for Client {
    fn from(inner: crate::Client) -> Self {
        Self { inner }
    }
}

/// Waits for a future of this crate on the calling thread. It is no executor for other futures:
/// those of tokio's timers and sockets need tokio's.
pub fn wait<F: Future>(future: F) -> F::Output {
    let parked = Arc::new(Parked {
        woken: AtomicBool::new(false),
        thread: thread::current(),
    });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // The flag, not the thread's own token, since the poll may have used that up.
        while !parked.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// A thread that waits, and whether it has been woken.
struct Parked {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
