//! How a client is set up.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::clock::{BootClock, Clock};
use crate::endpoint::Endpoint;
use crate::error::ConnectError;

/// Sets up a [`Client`]; [`Client::builder`] begins one.
#[must_use = "a builder does nothing until connect()"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
    pub(crate) options: Options,
}

/// What the parts of a client need to know.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// `None` connects without TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<ringfence_tls::Connector>,
    /// Where the client runs if it is simulated.
    #[cfg(feature = "sim")]
    pub(crate) place: Option<crate::sim::Place>,
}

impl Options {
    /// How often an idle connection is probed. Of the times that the user allows a tenth is left for
    /// connecting again.
    pub(crate) fn probe_interval(&self) -> Duration {
        self.keep_alive_interval - self.keep_alive_interval / 10
    }

    /// How long the answer to a probe may take.
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.keep_alive_timeout - self.keep_alive_timeout / 10
    }

    /// How long a connection may be silent on something asked before it counts as dead.
    pub(crate) fn silence_max(&self) -> Duration {
        self.probe_interval().saturating_add(self.probe_timeout())
    }
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        let options = Options {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(2),
            clock: Arc::new(BootClock),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "sim")]
            place: None,
        };
        Self {
            endpoints: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            options,
        }
    }

    /// Adds addresses of members, `HOST:PORT`, `http://HOST:PORT`, or `https://HOST:PORT` for TLS.
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

    /// Another clock than the machine's, for tests that step time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.options.clock = clock;
        self
    }

    /// Starts the client and waits until a member has greeted it.
    ///
    /// # Errors
    /// [`ConnectError`] if an endpoint is malformed, a certificate cannot be used, or no member
    /// answers in time.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let endpoints = Endpoint::parse_all(&self.endpoints)?;
        #[cfg(feature = "tls")]
        let options = Options {
            tls: crate::tls::connector(&self.endpoints, self.tls)?,
            ..self.options
        };
        #[cfg(not(feature = "tls"))]
        let options = self.options;
        Client::start(endpoints, options).await
    }
}
