//! The settings that the parts of a client share.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::transport::credential::Credential;
use crate::transport::trace::TraceContext;

/// What the parts of a client need to know.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credential: Credential,
    pub(crate) trace_context: Option<TraceContext>,
    /// `None` connects without TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<ringfence_tls::Connector>,
    /// Where the client runs if it is simulated.
    #[cfg(feature = "sim")]
    pub(crate) simulation: Option<crate::sim::Simulation>,
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

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(2),
            clock: Arc::new(BootClock),
            credential: Credential::default(),
            trace_context: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "sim")]
            simulation: None,
        }
    }
}
