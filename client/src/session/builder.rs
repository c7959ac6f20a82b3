//! How a client is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::session::client::Client;
#[cfg(feature = "sim")]
use crate::sim;
use crate::transport::credential::{Credential, TokenSource};
use crate::transport::endpoint::Endpoint;
use crate::transport::error::ConnectError;
use crate::transport::options::Options;
use crate::transport::trace::TraceParent;

/// Sets up a [`Client`]; [`Client::builder`] begins one.
#[must_use = "a builder does nothing until connect()"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
    token: Option<TokenSource>,
    pub(crate) options: Options,
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
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            endpoints: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            token: None,
            options: Options::default(),
        }
    }

    /// Adds addresses of members, `HOST:PORT`, `http://HOST:PORT`, or `https://HOST:PORT` for TLS;
    /// or `unix:/PATH`, the socket `admin.sock` in the data directory of a node on this machine.
    /// One that works is enough, since each member names the leader; several survive the loss of
    /// one. Names are resolved again at each connection. All members are connected to in one way,
    /// those that the cluster names too.
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endpoints.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// Connects with TLS: whom to trust, and what to show. Endpoints are then `https://` or without
    /// a scheme.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Shows this bearer token with every call, to prove who the client is: a cluster token, or what
    /// an identity provider gave. Use TLS: a process that reads it can use it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(TokenSource::Text(token.into()));
        self
    }

    /// The same with a token in a file, of at most 8 KiB, that may be replaced at any time, as
    /// Kubernetes does. It is looked at every 5 s; one that holds a JSON Web Token, only from two
    /// thirds of its lifetime on, or when the token is refused. When there is another token,
    /// streams are opened again with it. No lease is lost by that.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Some(TokenSource::File(path.into()));
        self
    }

    /// How long [`connect`](Self::connect) tries until it fails, 5 s unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// How long a request is tried, retries included, 10 s unless set. An acquire that waits has
    /// its wait on top.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.options.request_timeout = timeout;
        self
    }

    /// How often an idle connection is probed, 2 s unless set, and how long the answer may take,
    /// 2 s unless set. A connection that is dead or half-open is replaced within the sum of both.
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.options.keep_alive_interval = interval;
        self.options.keep_alive_timeout = timeout;
        self
    }

    /// Names the caller's place in a trace with each request that is sent for a caller, if `current`
    /// says one: the nodes record the request in that trace, if they have a collector. `current` is
    /// called where the caller's future is polled, so that what is current there is found; it must not
    /// block. What the client does automatically, as keep-alives, belongs to no trace.
    ///
    /// With OpenTelemetry it reads the present span's context:
    ///
    /// ```
    /// use ringfence_client::{Client, TraceParent};
    ///
    /// # fn present() -> ([u8; 16], [u8; 8], bool) { ([1; 16], [2; 8], true) }
    /// let builder = Client::builder().trace_context(|| {
    ///     // Of `opentelemetry::Context::current().span().span_context()`: `trace_id().to_bytes()`,
    ///     // `span_id().to_bytes()`, and `is_sampled()`.
    ///     let (trace_id, span_id, sampled) = present();
    ///     TraceParent::new(trace_id, span_id, sampled)
    /// });
    /// ```
    pub fn trace_context(
        mut self,
        current: impl Fn() -> Option<TraceParent> + Send + Sync + 'static,
    ) -> Self {
        self.options.trace_context = Some(Arc::new(current));
        self
    }

    /// Another clock than the machine's, for tests that step time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.options.clock = clock;
        self
    }

    /// Puts the client on a simulated host. Give it that host's clock, too, and connect it in a
    /// task of the host.
    #[cfg(feature = "sim")]
    pub fn simulated(mut self, host: Arc<sim::Host>, network: Arc<dyn sim::Network>) -> Self {
        self.options.simulation = Some(sim::Simulation { host, network });
        self
    }

    /// Starts the client and waits until a member has greeted it.
    ///
    /// # Errors
    /// [`ConnectError`] if an endpoint is malformed, a certificate or a token cannot be used, no member
    /// answers in time, or all refuse who the client is.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let endpoints = Endpoint::parse_all(&self.endpoints)?;
        let mut options = self.options;
        #[cfg(feature = "tls")]
        {
            options.tls = crate::transport::tls::connector(&self.endpoints, self.tls)?;
        }
        if let Some(source) = self.token {
            options.credential = Credential::new(source)?;
        }
        Client::start(endpoints, options).await
    }
}
