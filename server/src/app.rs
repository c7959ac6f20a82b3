//! How a node is wired, and how it ends.
//!
//! ```text
//!   clients ── gRPC ──> services ──┐
//!   probes  ── HTTP ──> http ──────┼──> ringfence_raft::Node ──> log, state, other nodes
//!   health, metrics ───────────────┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use ringfence_access::Peer;
use ringfence_core::Mode;
use ringfence_raft::{Node, StartError, StopReason};
use ringfence_services::{Context, Pool};
use ringfence_tls::{Acceptor, Port, PortLimits, TlsError};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::admin_socket::AdminSocket;
use crate::audit_log::AuditLog;
use crate::backups::BackupFigures;
use crate::bucket::BucketError;
use crate::client_connection::ClientConnection;
use crate::config::Config;
use crate::descriptors;
use crate::health::{self, tell_health};
use crate::identify::IdentifyLayer;
use crate::leave::leave_if_scaled_away;
use crate::limits::{DRAIN_MAX, HANDOVER_MAX, NODE_STOP_MAX};
use crate::metrics::{Certificates, Metrics, Ports};
use crate::notify::Notice;
use crate::otlp::Telemetry;
use crate::progress::Progress;
use crate::reach::Reach;
use crate::restoring::RestoreError;
use crate::served::{lease_api as lease_api_services, services};
use crate::signals::Signals;
use crate::{backups, certificates, forming, http, kube, node_config, pods, restoring, tcp_probes};

/// Why a node did not start, or ended on its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    /// An address cannot be listened on.
    #[error("--{flag} {address}: {source}; choose another address, or stop what uses this one")]
    Listen {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error at binding.
        source: io::Error,
    },
    /// A certificate that was good when the configuration was read is not any more.
    #[error("TLS: {0}")]
    Tls(TlsError),
    /// Callers cannot be proven as the configuration says.
    #[error("--client-cert-principal or --jwt-issuer: {0}")]
    Credentials(ringfence_access::InvalidCredentials),
    /// The audit log cannot be opened.
    #[error("--audit-log: {0}; name a file in a directory that the node may write to, or `-`")]
    AuditLog(io::Error),
    /// The bucket of backups cannot be used.
    #[error("--backup-dir: {0}")]
    Backups(BucketError),
    /// What is to be restored cannot be used.
    #[error(transparent)]
    Restore(RestoreError),
    /// The collector cannot be spoken to as configured.
    #[error("--otlp-endpoint: {0}")]
    Otlp(String),
    /// There is no way to the API server of Kubernetes.
    #[error("--kube-mirror, --kube-pods or --kube-leave: {0}")]
    Kube(ringfence_kube::ConnectError),
    /// The node did not start.
    #[error("{}", in_full(.0))]
    Start(StartError),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// The node cannot go on.
    #[error("the node stopped on its own: {0}")]
    Stopped(StopReason),
    /// A server ended on its own.
    #[error("the {what} server ended on its own: {why}")]
    Server {
        /// The port that it served, in a word.
        what: &'static str,
        /// The error in words.
        why: String,
    },
}

/// Runs a node until SIGTERM or SIGINT. At each `hangup` it opens its audit log again.
///
/// # Errors
/// [`AppError`] if it cannot start, or ends on its own.
pub(crate) async fn run(config: Config, hangup: Signal) -> Result<(), AppError> {
    let mut signals = Signals::new().map_err(AppError::Signals)?;
    let client_listener = bind("listen-client", config.listen_client)?;
    if let Err(error) = tcp_probes::enable(&client_listener) {
        warn!(%error, "connections of HTTP/1 whose client is gone stay until they are written to");
    }
    let client_tls = config.client_tls.clone().map(Acceptor::http);
    let client_tls = client_tls.transpose().map_err(AppError::Tls)?;
    let lease_api = lease_api_port(&config)?;
    let http_listener = bind("listen-http", config.listen_http)?;
    let http_tls = config.http_tls.clone().map(Acceptor::http1);
    let http_tls = http_tls.transpose().map_err(AppError::Tls)?;
    let has_http_tls = http_tls.is_some();
    let api_server = api_server(&config).await?;
    let peer_tls = node_config::peer_tls(&config).map_err(AppError::Tls)?;
    let has_peer_tls = peer_tls.is_some();
    warn_of_open_peers(&config);
    if let Some(backups) = &config.backups {
        backups.place.check().map_err(AppError::Backups)?;
    }
    // What is in a bucket may take its time.
    let restore = tokio::select! {
        restore = restoring::restore(&config) => restore.map_err(AppError::Restore)?,
        signal = signals.received() => {
            info!(signal, "stopping: what is to be restored was not read to its end");
            return Ok(());
        }
    };
    let mut telemetry = Telemetry::of(&config).map_err(AppError::Otlp)?;
    let mut to_start = node_config::node_config(&config, peer_tls, restore);
    to_start.spans = telemetry.as_ref().map(Telemetry::spans).unwrap_or_default();
    let node = Node::start(to_start).await.map_err(start_error)?;
    info!(
        name = config.name,
        incarnation = %node.incarnation(),
        client = %config.listen_client,
        client_tls = client_tls.is_some(),
        peer_tls = has_peer_tls,
        http_tls = has_http_tls,
        peer = %config.listen_peer,
        http = %config.listen_http,
        data_dir = %config.data_dir.display(),
        "started"
    );

    let mirrors = config.kube_mirror.is_some();
    let kube_metrics = mirrors.then(ringfence_kube::Metrics::default);
    let follows = config.kube_pods;
    let pod_figures = follows.then(ringfence_kube::pods::Figures::default);
    let backup_figures = config.backups.as_ref().map(BackupFigures::of);
    let ports = Ports::new();
    let pool = ports.pool.clone();
    let (stop, stopping) = watch::channel(false);
    let context = Context::new(node.clone(), pool.clone(), stopping.clone())
        .with_rates(config.principal_rates);
    let reach = |ports: &[Option<SocketAddr>]| {
        let ports = ports.iter().copied().flatten();
        Reach::of(ports, &config.access, &node)
    };
    let of_clients = [Some(config.listen_client), config.listen_lease_api];
    let progress = Progress::of(node.clone(), reach(&of_clients));
    tokio::spawn(reach(&of_clients).report(stopping.clone()));
    let identify = IdentifyLayer::new(&config.access, &node, &context, reach(&of_clients[..1]));
    let identify = identify.map_err(AppError::Credentials)?;
    if let Some(target) = &config.audit_log {
        let log = AuditLog::open(target, &config.data_dir, &node, &context, hangup);
        let log = log.map_err(AppError::AuditLog)?;
        tokio::spawn(log.run(stopping.clone()));
    }
    let metrics = Metrics::new(
        &progress,
        context.metrics(),
        &ports,
        &identify,
        Certificates::of(&config),
        |registry| {
            if let Some(mirror) = &kube_metrics {
                mirror.register(registry);
            }
            if let Some(pods) = &pod_figures {
                pods.register(registry);
            }
            if let Some(backups) = &backup_figures {
                backups.register(registry);
            }
            if let Some(telemetry) = &telemetry {
                telemetry.register(registry);
            }
        },
    );
    if let (Some(config), Some(figures)) = (config.backups.clone(), backup_figures) {
        let taking = backups::take(node.clone(), config, figures, stopping.clone());
        tokio::spawn(taking);
    }
    tokio::spawn(certificates::watch(
        certificates::of_node(&config),
        stopping.clone(),
    ));
    let (health, health_service) = health::begun().await;
    let stopped = |mut stopping: watch::Receiver<bool>| async move {
        stopping.wait_for(|stopping| *stopping).await.ok();
    };

    let descriptors = descriptors::raise();
    let wanted = config.client_connections_max;
    // Electors come by a port of their own, and as many of them.
    let shares = 1 + u64::from(lease_api.is_some());
    let room = descriptors::room_for_clients(wanted * shares, descriptors);
    let room = (room / shares).max(1);
    if room < wanted {
        warn!(
            client_connections_max = room,
            wanted,
            descriptors,
            "fewer connections of clients than --client-connections-max: the process may not have \
             more files open (ulimit -n)"
        );
    }
    let limits = PortLimits::http(usize::try_from(room).unwrap_or(usize::MAX));
    let scheme = if client_tls.is_some() {
        "https"
    } else {
        "http"
    };
    let client_port = Port::new(
        "client",
        client_listener,
        client_tls,
        limits,
        ports.client.clone(),
    );
    let connections = accepted(client_port, &context, &identify, &pool);
    let clients = services(
        &context,
        identify.clone(),
        &ports.pool,
        health_service.clone(),
        scheme,
    )
    .serve_with_incoming_shutdown(connections, stopped(stopping.clone()));
    if let Some((listener, tls)) = lease_api {
        let limits = PortLimits::http(usize::try_from(room).unwrap_or(usize::MAX));
        let figures = ports.lease_api.clone();
        let port = Port::new("lease-api", listener, Some(tls), limits, figures);
        let connections = accepted(port, &context, &identify, &pool);
        let identify = identify.at(reach(&of_clients[1..]));
        let identify = identify.of_electors(config.access.electors.clone());
        let served = lease_api_services(&context, identify, &ports.pool)
            .serve_with_incoming_shutdown(connections, stopped(stopping.clone()));
        tokio::spawn(served);
    }
    let of_http = identify.at(reach(&[Some(config.listen_http)]));
    let judge = http::Judge::new(of_http, context.clone());
    let admin = AdminSocket::bind(&config.data_dir).map(|socket| {
        let (pool, of_connections) = (ports.pool.clone(), context.clone());
        let connections = socket.connections().map(move |accepted| {
            let peer = Peer::admin_socket();
            let principals = of_connections.connection_principals();
            io::Result::Ok(ClientConnection::new(accepted, peer, principals, &pool))
        });
        services(&context, identify, &ports.pool, health_service, "http")
            .serve_with_incoming_shutdown(connections, stopped(stopping.clone()))
    });
    let _admin = admin.map(tokio::spawn);
    let mut clients = tokio::spawn(clients);
    let http = http::serve(
        Port::new(
            "http",
            http_listener,
            http_tls,
            http::limits(descriptors),
            ports.http.clone(),
        ),
        judge,
        progress.clone(),
        metrics.clone(),
        has_http_tls,
        stopped(stopping.clone()),
    );
    let mut http = tokio::spawn(http);
    if let Some(telemetry) = &mut telemetry {
        telemetry.begin(&metrics);
    }
    tokio::spawn(metrics.count_transitions(node.clone()));
    if let (Some(client), Some(mirror), Some(metrics)) =
        (&api_server, &config.kube_mirror, kube_metrics)
    {
        let (client, naming) = (client.clone(), mirror.naming.clone());
        let mirror = kube::mirror(node.clone(), client, naming, metrics, stopping.clone());
        tokio::spawn(mirror);
    }
    if let (Some(client), Some(figures)) = (&api_server, pod_figures) {
        let (node, client) = (node.clone(), client.clone());
        tokio::spawn(pods::watch(node, client, figures, stopping.clone()));
    }
    if config.access.mode != Mode::Off {
        let (node, mode) = (node.clone(), config.access.mode);
        let (name, first) = (config.name.clone(), config.initial_cluster.clone());
        tokio::spawn(forming::heed_mode(
            node,
            mode,
            name,
            first,
            stopping.clone(),
        ));
    }
    tokio::spawn(tell_health(progress, health, stopping));
    Notice::Ready.send();

    let ended = tokio::select! {
        signal = signals.received() => {
            info!(signal, "stopping");
            Ok(())
        }
        reason = node.stopped() => Err(AppError::Stopped(reason)),
        done = &mut clients => Err(server_ended("client", done)),
        done = &mut http => Err(server_ended("HTTP", done)),
    };
    Notice::Stopping.send();
    let left = match (&ended, api_server, &config.leaves_as) {
        (Ok(()), Some(client), Some(pod)) => leave_if_scaled_away(&node, client, pod).await,
        // Its own farewell may have been heard after it had stopped waiting for the answer. Only a
        // removal that is committed is reported, so nothing depends on this directory any more.
        (Err(AppError::Stopped(StopReason::Removed)), _, Some(_)) => true,
        _ => false,
    };
    // Its clients are rejected next: by then they are to find another leader.
    node.resign(HANDOVER_MAX).await;
    stop.send_replace(true);
    if ended.is_ok() && timeout(DRAIN_MAX, &mut clients).await.is_err() {
        info!("some clients still hold their connections; they see them end");
    }
    let exported = async {
        if let Some(telemetry) = telemetry {
            telemetry.end().await;
        }
    };
    let (stopped, ()) = tokio::join!(timeout(NODE_STOP_MAX, node.shutdown()), exported);
    if stopped.is_err() {
        warn!("the node did not stop in time; its log is whole all the same");
    }
    if left {
        clear(&config.data_dir);
    }
    ended
}

/// Empties the directory of a node that has left its cluster: no process may ever be that node
/// again, and the node that is started here next is to be a new one.
fn clear(data_dir: &Path) {
    match std::fs::remove_dir_all(data_dir) {
        Ok(()) => info!(data_dir = %data_dir.display(), "cleared"),
        Err(error) => warn!(
            data_dir = %data_dir.display(),
            %error,
            "not cleared: a node that is started here will learn that it was removed"
        ),
    }
}

/// The connections of a port that callers are proven at, each with an account of its own.
fn accepted(
    port: Port,
    context: &Context,
    callers: &IdentifyLayer,
    pool: &Arc<Pool>,
) -> impl Stream<Item = io::Result<ClientConnection>> + use<> {
    let (context, callers, pool) = (context.clone(), callers.clone(), Arc::clone(pool));
    port.incoming().map(move |accepted| {
        let accepted = accepted?;
        let peer = callers.peer(&accepted);
        let principals = context.connection_principals();
        Ok(ClientConnection::new(accepted, peer, principals, &pool))
    })
}

/// The port of the Lease endpoint, if it is served. It speaks HTTP/1.1 alone.
fn lease_api_port(config: &Config) -> Result<Option<(TcpListener, Acceptor)>, AppError> {
    let (Some(address), Some(tls)) = (config.listen_lease_api, config.client_tls.clone()) else {
        return Ok(None);
    };
    let listener = bind("listen-lease-api", address)?;
    let tls = Acceptor::http1(tls).map_err(AppError::Tls)?;
    Ok(Some((listener, tls)))
}

/// The way to the API server of Kubernetes, if anything is asked of it.
async fn api_server(config: &Config) -> Result<Option<ringfence_kube::Client>, AppError> {
    if config.kube_mirror.is_none() && config.leaves_as.is_none() && !config.kube_pods {
        return Ok(None);
    }
    let connected = ringfence_kube::connect(config.kubeconfig.as_deref()).await;
    connected.map(Some).map_err(AppError::Kube)
}

fn start_error(error: StartError) -> AppError {
    match error {
        StartError::Listen { address, source } => AppError::Listen {
            flag: "listen-peer",
            address,
            source,
        },
        other => AppError::Start(other),
    }
}

/// An error with everything that led to it.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, AppError> {
    let refused = |source| AppError::Listen {
        flag,
        address,
        source,
    };
    ringfence_raft::listen(address).map_err(refused)
}

fn server_ended<E: std::fmt::Display>(
    what: &'static str,
    done: Result<Result<(), E>, tokio::task::JoinError>,
) -> AppError {
    let why = match done {
        Ok(Ok(())) => "it was not asked to".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    AppError::Server { what, why }
}

/// Tells the operator who may act as a node although no name says so.
fn warn_of_open_peers(config: &Config) {
    let Some(tls) = &config.peer_tls else { return };
    if tls.is_permissive() {
        warn!(
            "the peer port admits nodes without TLS (--peer-tls-mode permissive): anyone who reaches \
             it can act as a node; restart every node with --peer-tls-mode required once all have TLS"
        );
    } else if !tls.accept.demand_client_certificate {
        warn!(
            "the peer port demands no certificate: anyone who reaches it can act as a node; set \
             --peer-tls-name"
        );
    } else if !tls.accept.admits_peers_alone() {
        warn!(
            "any certificate of --peer-trusted-ca-file is a node's, a client's too: set \
             --peer-tls-name to names that only the certificates of nodes have"
        );
    }
    for (at, ca) in tls.secrets.iter().enumerate() {
        match at {
            0 => info!(%ca, "CA of the cluster secret: nodes that trust it know this one"),
            _ => info!(%ca, "CA of a further cluster secret, which is trusted as well"),
        }
    }
}
