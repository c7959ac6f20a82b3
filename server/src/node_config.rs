//! From the configuration to what a node is started with.

use ringfence_raft::{NodeConfig, PeerTls, Restore};
use ringfence_tls::{Acceptor, Connector, TlsError};

use crate::config::Config;

/// TLS between nodes, if there is any.
pub(crate) fn peer_tls(config: &Config) -> Result<Option<PeerTls>, TlsError> {
    let Some(tls) = &config.peer_tls else {
        return Ok(None);
    };
    Ok(Some(PeerTls {
        accept: Acceptor::new(tls.accept.clone())?,
        connect: Connector::new(tls.connect.clone())?.telling(),
    }))
}

/// What a node is started with.
pub(crate) fn node_config(
    config: &Config,
    peer_tls: Option<PeerTls>,
    restore: Option<Restore>,
) -> NodeConfig {
    let mut node = NodeConfig::new(&config.name, &config.data_dir);
    node.peer_listen = config.listen_peer;
    node.peer_port_is_local = config.listen_peer.ip().to_canonical().is_loopback();
    node.peer_tls = peer_tls;
    node.client_advertise = config.advertise_client.clone();
    node.peer_advertise = Some(config.advertise_peer.clone());
    node.initial_cluster = config.initial_cluster.clone();
    node.join = config.join.clone();
    node.replace_on_data_loss = config.replace_on_data_loss;
    node.join_as_voter = config.join_as_voter;
    node.token_floor = config.token_floor;
    node.settings = config.settings;
    node.quiet_time = config.quiet_time.unwrap_or_default();
    node.restore = restore;
    node.mode = config.access.mode;
    node.timing.heartbeat = config.heartbeat;
    (node.timing.election_min, node.timing.election_max) = config.election;
    node.pod_sessions = config.kube_pods;
    node.wal_segment_bytes = config.wal_segment_bytes;
    node.snapshot_log_bytes = config.snapshot_log_bytes;
    node
}
