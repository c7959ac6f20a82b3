//! What the environment says.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_client::Timings;

/// Where the cluster is, unless `RINGFENCE_ENDPOINTS` says otherwise: its Service in its namespace.
const ENDPOINTS: &str = "ringfence.ringfence:7420";

/// How long a lease lasts, unless `LEASE_SECONDS` says otherwise.
const LEASE: Duration = Duration::from_secs(15);

/// What the environment says.
pub(crate) struct Settings {
    /// Client addresses of the cluster: `RINGFENCE_ENDPOINTS`, separated by commas.
    pub(crate) endpoints: Vec<String>,
    /// The file with the token that proves who it is: `RINGFENCE_TOKEN_FILE`.
    pub(crate) token_file: Option<PathBuf>,
    /// The namespace of what is written: `NAMESPACE`.
    pub(crate) namespace: String,
    /// The lease: `LEASE`, or `k8s/NAMESPACE/leader`, which is mirrored to the Lease `leader`.
    pub(crate) lease: String,
    /// The lease duration is `LEASE_SECONDS`; the other times go with it.
    pub(crate) timings: Timings,
    /// Before which write the process stops itself, to be continued by SIGCONT: `STOP_AT`.
    pub(crate) stop_at: Option<u64>,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, Box<dyn Error>> {
        let set = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
        let endpoints = set("RINGFENCE_ENDPOINTS").unwrap_or_else(|| ENDPOINTS.to_owned());
        let namespace = set("NAMESPACE").unwrap_or_else(|| "default".to_owned());
        let lease = set("LEASE").unwrap_or_else(|| format!("k8s/{namespace}/leader"));
        let lasts = set("LEASE_SECONDS").map(|text| {
            let lasts = text.parse().ok();
            let lasts = lasts.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            lasts.ok_or_else(|| format!("LEASE_SECONDS is {text:?}, expected a number of seconds"))
        });
        let lasts = lasts.transpose()?.unwrap_or(LEASE);
        let timings = Timings::new(Some(lasts), Some(lasts * 2 / 3), Some(lasts * 2 / 15))?;
        let stop_at = set("STOP_AT").map(|text| {
            let at = text.parse().ok();
            at.ok_or_else(|| format!("STOP_AT is {text:?}, expected the number of a write"))
        });
        Ok(Self {
            endpoints: endpoints.split(',').map(str::to_owned).collect(),
            token_file: set("RINGFENCE_TOKEN_FILE").map(PathBuf::from),
            namespace,
            lease,
            timings,
            stop_at: stop_at.transpose()?,
        })
    }
}
