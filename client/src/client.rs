//! The client: one per program is enough.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use ringfence_proto::v1::client_frame;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::server_frame;
use ringfence_proto::v1::sessions_client::SessionsClient;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::builder::{ClientBuilder, Options};
use crate::calls::Manner;
use crate::clock::Moment;
use crate::connection::MESSAGE_BYTES_MAX;
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

    /// Sends one request over the stream and waits for its reply, within the client's request
    /// timeout. See [`request_within`](Self::request_within).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request(&self, body: client_frame::Body) -> Result<server_frame::Body, CallError> {
        self.request_within(body, self.hub.options.request_timeout)
            .await
    }

    /// Sends one request over the stream and waits at most `timeout` for its reply. It is repeated
    /// unchanged, so with the same request number, as long as its outcome is open: every request a
    /// frame can carry is safe to repeat.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request_within(
        &self,
        body: client_frame::Body,
        timeout: Duration,
    ) -> Result<server_frame::Body, CallError> {
        let waits = matches!(&body, client_frame::Body::Acquire(ask) if ask.wait_ms.is_some());
        let manner = if waits {
            Manner::Waiting
        } else {
            Manner::Prompt
        };
        let answer = self
            .hub
            .call(body, manner, self.hub.now() + timeout)
            .await?;
        Ok(answer.body)
    }

    /// Makes a unary call on the current connection, and repeats it while the cluster is
    /// unavailable or its outcome unknown, within the client's request timeout. For calls that are
    /// harmless to repeat, as all outside sessions are: they name the token or index they act on.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn unary<T, F, Fut>(&self, call: F) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Fn(Channel) -> Fut + Send + 'static,
        Fut: Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send + 'static,
    {
        unary::call(&self.hub, call).await
    }

    /// The connection to the current endpoint, shared with the stream; waits until there is one.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] if there is none within the request timeout.
    pub async fn channel(&self) -> Result<Channel, CallError> {
        let hub = Arc::clone(&self.hub);
        self.on_thread(async move { unary::channel(&hub, hub.deadline()).await })
            .await
    }

    /// The generated client of the service `Leases` on the current endpoint. It does not follow
    /// the leader by itself: get a new one after a failure, or use [`unary`](Self::unary).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn leases(&self) -> Result<LeasesClient<Channel>, CallError> {
        let channel = self.channel().await?;
        Ok(LeasesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// The generated client of the service `Sessions`; see [`leases`](Self::leases).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn sessions(&self) -> Result<SessionsClient<Channel>, CallError> {
        let channel = self.channel().await?;
        Ok(SessionsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// The generated client of the service `Cluster`; see [`leases`](Self::leases).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn cluster(&self) -> Result<ClusterClient<Channel>, CallError> {
        let channel = self.channel().await?;
        Ok(ClusterClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
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

/// A task that ends when nobody waits for it any more.
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
