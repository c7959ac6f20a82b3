//! The client: one per program is enough.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::task::JoinHandle;

use crate::builder::{ClientBuilder, Options};
use crate::clock::Moment;
use crate::driver::{self, Tether};
use crate::endpoint::Endpoint;
use crate::error::{AttachError, CallError, ConnectError, OpenError};
use crate::follow::Follow;
use crate::handle::SessionHandle;
use crate::hub::Hub;
use crate::open::{self, Life};
use crate::session::{Session, SessionOptions};
use crate::{chance, keepalive, unary, upkeep};

/// A connection to a cluster. Cheap to clone; all clones share one stream and one thread.
#[derive(Clone)]
pub struct Client {
    pub(crate) hub: Arc<Hub>,
    pub(crate) tether: Arc<Tether>,
}

impl Client {
    /// Connects to a cluster with the standard settings.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub async fn connect(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, ConnectError> {
        Self::builder().endpoints(endpoints).connect().await
    }

    /// Begins to set up a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) async fn start(
        endpoints: Vec<Endpoint>,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let (thread, tether) = driver::start(&options).map_err(ConnectError::Thread)?;
        let first = chance::rng().random_range(0..endpoints.len());
        let hub = Arc::new(Hub::new(options, thread, Follow::new(endpoints, first)));
        #[cfg(feature = "sim")]
        if let Some(place) = &hub.options.place {
            place.host.holds(&hub);
        }
        // These hold the hub, and end with the thread; only the tether keeps that running.
        let running = Arc::clone(&hub);
        drop(hub.thread.spawn(async move { upkeep::run(&running).await }));
        let running = Arc::clone(&hub);
        drop(
            hub.thread
                .spawn(async move { keepalive::run(&running).await }),
        );
        let running = Arc::clone(&hub);
        drop(
            hub.thread
                .spawn(async move { running.link.run_timers().await }),
        );
        let client = Self {
            hub,
            tether: Arc::new(tether),
        };
        client.greeted().await?;
        Ok(client)
    }

    /// Opens a session and keeps it alive until it is closed, left, or lost.
    ///
    /// # Errors
    /// [`OpenError`] if the options are refused or the cluster does not answer in time.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let life = Life::Ttl {
            ttl: options.ttl,
            patience: Duration::MAX,
        };
        open::open(&self.hub, &self.tether, options.identity, life).await
    }

    /// Resumes a session from its handle and keeps it alive. `ttl` is what the session was opened
    /// with; the cluster is asked, and the smaller one counts. Pass [`Duration::MAX`] to take the
    /// cluster's word.
    ///
    /// One process at a time should send requests for a session; others may keep it alive.
    /// Dropping a resumed session neither closes it nor releases what it holds.
    ///
    /// # Errors
    /// [`AttachError`] if the session has ended, or the secret is wrong.
    pub async fn attach(
        &self,
        handle: SessionHandle,
        ttl: Duration,
    ) -> Result<Session, AttachError> {
        open::attach(&self.hub, &self.tether, handle, ttl).await
    }

    /// The present moment on the clock that windows are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.hub.now()
    }

    /// Completes at `moment`, on any executor, also if the machine was suspended meanwhile.
    pub fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + Send + 'static {
        let (hub, tether) = (Arc::clone(&self.hub), Arc::clone(&self.tether));
        let sleeping = hub.thread.spawn({
            let hub = Arc::clone(&hub);
            async move { hub.options.clock.sleep_until(moment).await }
        });
        let mut sleeping = AbortOnDrop(sleeping);
        async move {
            // The tether keeps the thread running, so the task ends only when it has slept.
            (&mut sleeping.0).await.ok();
            drop(tether);
        }
    }

    /// The address of the member that the stream is connected to, if it is connected.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        let current = self.hub.link.current();
        current
            .borrow()
            .as_ref()
            .map(|current| current.endpoint.to_string())
    }

    /// Waits for the first greeting.
    async fn greeted(&self) -> Result<(), ConnectError> {
        let hub = Arc::clone(&self.hub);
        let deadline = hub.now() + hub.options.connect_timeout;
        let greeted = self
            .on_thread(async move { unary::channel(&hub, deadline).await })
            .await;
        match greeted {
            Ok(_) => Ok(()),
            Err(error) => Err(ConnectError::Unreachable {
                why: self.hub.link.trouble().unwrap_or_else(|| error.to_string()),
            }),
        }
    }

    /// Runs a piece of work on the client's thread; dropping the future stops it.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        on_thread(&self.hub, work).await
    }
}

/// Runs a piece of work on the client's thread; dropping the future stops it.
pub(crate) async fn on_thread<T: Send + 'static>(
    hub: &Hub,
    work: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let mut task = AbortOnDrop(hub.thread.spawn(work));
    match (&mut task.0).await {
        Ok(result) => result,
        Err(_) => Err(CallError::Unknown {
            why: "the client has stopped".into(),
        }),
    }
}

/// A task that ends when no caller waits for it any more.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}
