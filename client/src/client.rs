//! The client: one per program is enough.

use std::time::Duration;

use ringfence_proto::v1::client_frame;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::server_frame;
use ringfence_proto::v1::sessions_client::SessionsClient;
use tonic::transport::Channel;

use crate::builder::{ClientBuilder, Options};
use crate::clock::Moment;
use crate::endpoint::Endpoint;
use crate::error::{AttachError, CallError, ConnectError, OpenError};
use crate::handle::SessionHandle;
use crate::session::{Session, SessionOptions};

/// A connection to a cluster. Cheap to clone; all clones share one stream and one thread.
#[derive(Clone)]
pub struct Client {}

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
        let _ = (endpoints, options);
        todo!()
    }

    /// Opens a session and keeps it alive until it is closed, left, or lost.
    ///
    /// # Errors
    /// [`OpenError`] if the options are refused or the cluster does not answer in time.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let _ = options;
        todo!()
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
        let _ = (handle, ttl);
        todo!()
    }

    /// Sends one request over the stream and waits for its reply, within the client's request
    /// timeout. See [`request_within`](Self::request_within).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request(
        &self,
        body: client_frame::Body,
    ) -> Result<server_frame::Body, CallError> {
        let _ = body;
        todo!()
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
        let _ = (body, timeout);
        todo!()
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
        Fut: Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send,
    {
        let _ = call;
        todo!()
    }

    /// The connection to the current endpoint, shared with the stream; waits until there is one.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] if there is none within the request timeout.
    pub async fn channel(&self) -> Result<Channel, CallError> {
        todo!()
    }

    /// The generated client of the service `Leases` on the current endpoint. It does not follow
    /// the leader by itself: get a new one after a failure, or use [`unary`](Self::unary).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn leases(&self) -> Result<LeasesClient<Channel>, CallError> {
        todo!()
    }

    /// The generated client of the service `Sessions`; see [`leases`](Self::leases).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn sessions(&self) -> Result<SessionsClient<Channel>, CallError> {
        todo!()
    }

    /// The generated client of the service `Cluster`; see [`leases`](Self::leases).
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    pub async fn cluster(&self) -> Result<ClusterClient<Channel>, CallError> {
        todo!()
    }

    /// The present moment on the clock that windows are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        todo!()
    }

    /// Completes at `moment`, on any executor, also if the machine was suspended meanwhile.
    pub fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + Send + 'static {
        let _ = moment;
        async { todo!() }
    }

    /// The address of the member that the stream is connected to, if it is connected.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        todo!()
    }
}
