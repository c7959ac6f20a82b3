//! What a node is given: flags, `RINGFENCE_*` variables and a TOML file become one typed
//! [`Config`].
//!
//! A flag wins over a variable, a variable over the file, the file over the default. Nothing that
//! `apply` looks at stands here but the settings a cluster is *formed* with; later they are
//! replicated state.

mod access;
mod address;
#[cfg(any(test, fuzzing))]
mod any_file;
mod backup;
mod duration;
mod electors;
mod error;
mod file;
mod given;
mod kube;
mod otlp;
mod own_node;
mod peer_tls;
mod range;
mod rates;
mod tls;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_core::{Millis, Settings, TOKEN_FLOOR_MAX};
use ringfence_services::PrincipalRates;
use ringfence_tls::ServerTls;

pub(crate) use access::Access;
#[cfg(any(test, fuzzing))]
pub(crate) use any_file::any_file;
pub(crate) use backup::{Backups, Restore};
pub(crate) use electors::Electors;
pub(crate) use error::ConfigError;
pub(crate) use given::{LogFormat, ServeArgs};
pub(crate) use kube::KubeMirror;
pub(crate) use otlp::Otlp;
#[cfg(feature = "otel")]
pub(crate) use otlp::{Sampler, Trust};
pub(crate) use peer_tls::NodeTls;

use address::{host_port, listen};
use given::Given;
use range::in_range;

use crate::audit_log::AuditTarget;
use crate::leave::Ordinal;
use crate::limits::CLIENT_CONNECTIONS_STANDARD;

/// The longest name of a node, in bytes.
const NODE_NAME_BYTES_MAX: usize = 63;
/// The most first members of a cluster.
const FIRST_MEMBERS_MAX: usize = 9;
/// Between two heartbeats, in milliseconds.
const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=1_000;
/// The longest election timeout, in milliseconds.
const ELECTION_MS_MAX: u64 = 60_000;
/// How many heartbeats the shortest election timeout must outlast: one may be lost, and one late.
const HEARTBEATS_PER_ELECTION: u64 = 3;
/// The size of a log segment, in bytes.
const WAL_SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
/// How much log may grow between two snapshots, in bytes.
const SNAPSHOT_LOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Connections of clients.
const CLIENT_CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=1_000_000;
/// Threads that serve requests.
const WORKER_THREADS: std::ops::RangeInclusive<u64> = 1..=256;

/// Everything that a node is given, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Its name, unique in the cluster.
    pub(crate) name: String,
    /// Where its log, vote, snapshots and history are.
    pub(crate) data_dir: PathBuf,
    /// Where clients are served.
    pub(crate) listen_client: SocketAddr,
    /// Where other nodes are served.
    pub(crate) listen_peer: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub(crate) listen_http: SocketAddr,
    /// Where the Lease endpoint is served, if anywhere; with the TLS of the client port.
    pub(crate) listen_lease_api: Option<SocketAddr>,
    /// The most connections of clients.
    pub(crate) client_connections_max: u64,
    /// TLS of the client port.
    pub(crate) client_tls: Option<ServerTls>,
    /// TLS of the HTTP port.
    pub(crate) http_tls: Option<ServerTls>,
    /// How callers are proven.
    pub(crate) access: Access,
    /// What one principal may ask of this node.
    pub(crate) principal_rates: PrincipalRates,
    /// Where the acts of operators and samples of refusals are written.
    pub(crate) audit_log: Option<AuditTarget>,
    /// TLS between nodes.
    pub(crate) peer_tls: Option<NodeTls>,
    /// How the API server of Kubernetes is reached; `None`: by the Pod that this process runs in.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Whether Pods are watched that sessions are bound to.
    pub(crate) kube_pods: bool,
    /// Leases as objects of Kubernetes.
    pub(crate) kube_mirror: Option<KubeMirror>,
    /// The address advertised to clients.
    pub(crate) advertise_client: String,
    /// The address advertised to other nodes.
    pub(crate) advertise_peer: String,
    /// Name and peer address of every first member; empty for a node that only joins.
    pub(crate) initial_cluster: Vec<(String, String)>,
    /// Peer addresses of members to join by.
    pub(crate) join: Vec<String>,
    /// Whether a node with an empty directory may take the place of the one of its name.
    pub(crate) replace_on_data_loss: bool,
    /// Whether it asks for a vote once it has joined and caught up.
    pub(crate) join_as_voter: bool,
    /// The Pod that it is, if it leaves the cluster when its StatefulSet gets too small for it.
    pub(crate) leaves_as: Option<Ordinal>,
    /// Replaces the wall clock as the lower bound of tokens, when a cluster is formed.
    pub(crate) token_floor: Option<u64>,
    /// The settings a cluster is formed with.
    pub(crate) settings: Settings,
    /// Between two heartbeats of the leader.
    pub(crate) heartbeat: Duration,
    /// The shortest and the longest election timeout.
    pub(crate) election: (Duration, Duration),
    /// The size of a log segment, in bytes.
    pub(crate) wal_segment_bytes: u64,
    /// Threads that serve requests.
    pub(crate) worker_threads: usize,
    /// How much log may grow between two snapshots, in bytes.
    pub(crate) snapshot_log_bytes: u64,
    /// What is logged, in the syntax of `tracing-subscriber`'s filter.
    pub(crate) log: String,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
    /// Backups that it takes on its own.
    pub(crate) backups: Option<Backups>,
    /// What the cluster is restored from, when it is formed.
    pub(crate) restore: Option<Restore>,
    /// For how long a cluster that is formed grants nothing.
    pub(crate) quiet_time: Option<Millis>,
    /// Where it exports traces and metrics to.
    pub(crate) otlp: Option<Otlp>,
}

impl Config {
    /// The configuration that these arguments, the environment and the file make.
    ///
    /// # Errors
    /// [`ConfigError`] names the first value that cannot be used, what is allowed and what to do.
    pub(crate) fn load(args: ServeArgs) -> Result<Self, ConfigError> {
        let file = args
            .config
            .map(file::read_file)
            .transpose()?
            .unwrap_or_default();
        let config = Self::check(args.given.over(file))?;
        let access = &config.access;
        access.check_reach("listen-client", config.listen_client)?;
        if let Some(address) = config.listen_lease_api {
            access.check_reach("listen-lease-api", address)?;
        }
        Ok(config)
    }

    fn check(given: Given) -> Result<Self, ConfigError> {
        let client_tls = tls::of_clients(&given)?;
        let http_tls = tls::of_http(&given)?;
        let access = access::access(&given)?;
        let principal_rates = rates::of_principals(&given)?;
        let kube_leave = given.kube_leave.unwrap_or(false);
        let kube_pods = given.kube_pods.unwrap_or(false);
        let kubeconfig = kube::kubeconfig(&given)?;
        let kube_mirror = kube::mirror(&given)?;
        let peer_tls = peer_tls::of_peers(&given)?;
        let backups = backup::backups(&given)?;
        let restore = backup::restore(&given, access.mode)?;
        let quiet_time = backup::quiet_time(&given)?;
        let otlp = otlp::otlp(&given)?;
        let name = given.name.unwrap_or_else(|| "n1".to_owned());
        check_node_name("name", &name)?;
        let leaves_as = kube_leave.then(|| kube::pod(&name)).transpose()?;

        let listen_client = listen("listen-client", given.listen_client, "[::]:7420")?;
        let listen_peer = listen("listen-peer", given.listen_peer, "[::]:7421")?;
        let listen_http = listen("listen-http", given.listen_http, "[::]:7422")?;
        let lease_api = given.listen_lease_api.clone();
        let listen_lease_api = lease_api
            .map(|raw| listen("listen-lease-api", Some(raw), ""))
            .transpose()?;
        check_distinct(&[
            ("listen-client", Some(listen_client)),
            ("listen-peer", Some(listen_peer)),
            ("listen-http", Some(listen_http)),
            ("listen-lease-api", listen_lease_api),
        ])?;
        let ports = [
            ("listen-client", listen_client),
            ("listen-peer", listen_peer),
        ];
        backup::check_drill(restore.as_ref(), &ports)?;
        if let (Some(address), None) = (listen_lease_api, &client_tls) {
            // Clients of Kubernetes send no token where there is no TLS.
            let allowed =
                "with --cert-file and --key-file: clients of Kubernetes show tokens over TLS only";
            let offered = format!("{address} without TLS");
            return Err(ConfigError::value("listen-lease-api", offered, allowed));
        }
        access::check_peers(access.mode, listen_peer, peer_tls.as_ref())?;

        let mut initial_cluster = first_members(&given.initial_cluster)?;
        let join: Vec<String> = given
            .join
            .iter()
            .map(|raw| host_port("join", raw))
            .collect::<Result<_, _>>()?;
        let listed = initial_cluster.iter().find(|(member, _)| *member == name);
        let listed = listed.map(|(_, address)| address.clone());
        check_listed(&name, &initial_cluster, listed.as_deref(), &join)?;

        let advertise_peer = match (given.advertise_peer, &listed) {
            (Some(raw), _) => host_port("advertise-peer", &raw)?,
            (None, Some(listed)) => listed.clone(),
            (None, None) => address::reachable("advertise-peer", listen_peer, &join)?,
        };
        let advertise_client = match given.advertise_client {
            Some(raw) => host_port("advertise-client", &raw)?,
            None => address::with_port(&advertise_peer, listen_client.port()),
        };
        if initial_cluster.is_empty() && join.is_empty() {
            initial_cluster.push((name.clone(), advertise_peer.clone()));
        }

        let heartbeat_ms = in_range(
            "heartbeat-ms",
            given.heartbeat_ms.unwrap_or(50),
            HEARTBEAT_MS,
        )?;
        Ok(Self {
            name,
            data_dir: given
                .data_dir
                .unwrap_or_else(|| PathBuf::from("ringfence-data")),
            listen_client,
            listen_peer,
            listen_http,
            listen_lease_api,
            client_connections_max: in_range(
                "client-connections-max",
                given
                    .client_connections_max
                    .unwrap_or(CLIENT_CONNECTIONS_STANDARD),
                CLIENT_CONNECTIONS,
            )?,
            client_tls,
            http_tls,
            access,
            principal_rates,
            audit_log: given.audit_log.map(AuditTarget::of),
            kube_pods,
            kube_mirror,
            peer_tls,
            advertise_client,
            advertise_peer,
            initial_cluster,
            join,
            replace_on_data_loss: given.replace_on_data_loss.unwrap_or(false),
            join_as_voter: given.join_as_voter.unwrap_or(false),
            leaves_as,
            kubeconfig,
            token_floor: token_floor(given.token_floor)?,
            settings: settings(given.ttl_min.as_deref(), given.ttl_max.as_deref())?,
            heartbeat: Duration::from_millis(heartbeat_ms),
            election: election(given.election_ms.as_deref(), heartbeat_ms)?,
            wal_segment_bytes: in_range(
                "wal-segment-bytes",
                given.wal_segment_bytes.unwrap_or(64 << 20),
                WAL_SEGMENT_BYTES,
            )?,
            snapshot_log_bytes: in_range(
                "snapshot-log-bytes",
                given.snapshot_log_bytes.unwrap_or(256 << 20),
                SNAPSHOT_LOG_BYTES,
            )?,
            worker_threads: worker_threads(given.worker_threads)?,
            log: log_filter(given.log)?,
            log_format: given.log_format.unwrap_or(LogFormat::Text),
            backups,
            restore,
            quiet_time,
            otlp,
        })
    }
}

/// As many as there are cores, if none are said.
fn worker_threads(given: Option<u64>) -> Result<usize, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = given.unwrap_or(cores as u64);
    let threads = in_range("worker-threads", threads, WORKER_THREADS)?;
    Ok(usize::try_from(threads).unwrap_or(cores))
}

fn check_node_name(flag: &'static str, name: &str) -> Result<(), ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !name.is_empty() && name.len() <= NODE_NAME_BYTES_MAX && name.bytes().all(allowed) {
        return Ok(());
    }
    let allowed =
        format!("a node's name is 1 to {NODE_NAME_BYTES_MAX} letters, digits, dots, _ and -");
    Err(ConfigError::value(flag, name, allowed))
}

fn check_distinct(ports: &[(&'static str, Option<SocketAddr>)]) -> Result<(), ConfigError> {
    for (at, (flag, address)) in ports.iter().enumerate() {
        let Some(address) = address else { continue };
        let same = ports[..at]
            .iter()
            .find(|(_, other)| *other == Some(*address));
        if let Some((other, _)) = same {
            let allowed = format!("an address of its own; --{other} has this one");
            return Err(ConfigError::value(flag, address.to_string(), allowed));
        }
    }
    Ok(())
}

/// Parses `n1=host:7421` and so on; refuses names and addresses that occur twice.
fn first_members(raw: &[String]) -> Result<Vec<(String, String)>, ConfigError> {
    const FLAG: &str = "initial-cluster";
    if raw.len() > FIRST_MEMBERS_MAX {
        let allowed = format!("at most {FIRST_MEMBERS_MAX} members");
        return Err(ConfigError::value(
            FLAG,
            format!("{} members", raw.len()),
            allowed,
        ));
    }
    let mut seen = BTreeSet::new();
    let mut members = Vec::with_capacity(raw.len());
    for member in raw {
        let Some((name, address)) = member.split_once('=') else {
            let allowed = "NAME=HOST:PORT, for example n1=10.0.0.1:7421";
            return Err(ConfigError::value(FLAG, member, allowed));
        };
        check_node_name(FLAG, name)?;
        let address = host_port(FLAG, address)?;
        for part in [name, address.as_str()] {
            if !seen.insert(part.to_owned()) {
                let allowed = format!("each name and each address once; {part} stands there twice");
                return Err(ConfigError::value(FLAG, raw.join(","), allowed));
            }
        }
        members.push((name.to_owned(), address));
    }
    Ok(members)
}

/// A node that is neither a first member nor joining would wait for ever.
fn check_listed(
    name: &str,
    members: &[(String, String)],
    listed: Option<&str>,
    join: &[String],
) -> Result<(), ConfigError> {
    if members.is_empty() || listed.is_some() || !join.is_empty() {
        return Ok(());
    }
    let names = members
        .iter()
        .map(|(name, _)| name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let allowed = format!(
        "a name in --initial-cluster ({names}), or --join with the peer address of a member for a \
         node that comes later"
    );
    Err(ConfigError::value("name", name, allowed))
}

fn token_floor(offered: Option<u64>) -> Result<Option<u64>, ConfigError> {
    offered
        .map(|floor| in_range("token-floor", floor, 0..=TOKEN_FLOOR_MAX))
        .transpose()
}

fn settings(ttl_min: Option<&str>, ttl_max: Option<&str>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::STANDARD;
    if let Some(raw) = ttl_min {
        settings.ttl_min = Millis(duration::millis("ttl-min", raw)?);
    }
    if let Some(raw) = ttl_max {
        settings.ttl_max = Millis(duration::millis("ttl-max", raw)?);
    }
    settings.check().map_err(|invalid| {
        let flag = if invalid.name == "ttl_min" {
            "ttl-min"
        } else {
            "ttl-max"
        };
        let allowed = format!("{} ms to {} ms", invalid.min, invalid.max);
        ConfigError::value(flag, format!("{} ms", invalid.offered), allowed)
    })?;
    Ok(settings)
}

fn election(raw: Option<&str>, heartbeat_ms: u64) -> Result<(Duration, Duration), ConfigError> {
    const FLAG: &str = "election-ms";
    let raw = raw.unwrap_or("200..300");
    let parsed = raw.split_once("..").and_then(|(min, max)| {
        Some((
            min.trim().parse::<u64>().ok()?,
            max.trim().parse::<u64>().ok()?,
        ))
    });
    let Some((min, max)) = parsed else {
        return Err(ConfigError::value(
            FLAG,
            raw,
            "MIN..MAX in milliseconds, as 200..300",
        ));
    };
    let least = heartbeat_ms * HEARTBEATS_PER_ELECTION;
    if min < least || max <= min || max > ELECTION_MS_MAX {
        let allowed = format!(
            "MIN of at least {HEARTBEATS_PER_ELECTION} heartbeats ({least}), MAX above MIN and at \
             most {ELECTION_MS_MAX}"
        );
        return Err(ConfigError::value(FLAG, raw, allowed));
    }
    Ok((Duration::from_millis(min), Duration::from_millis(max)))
}

/// openraft tells each step of an election; what matters of it is logged by the nodes themselves.
const LOG_DEFAULT: &str = "info,openraft=error";

fn log_filter(raw: Option<String>) -> Result<String, ConfigError> {
    let raw = raw.unwrap_or_else(|| LOG_DEFAULT.to_owned());
    match tracing_subscriber::EnvFilter::try_new(&raw) {
        Ok(_) => Ok(raw),
        Err(_) => {
            let allowed = "error, warn, info, debug or trace, per target if wished, as \
                           info,ringfence_raft=debug";
            Err(ConfigError::value("log", raw, allowed))
        }
    }
}

#[cfg(test)]
mod tests;
