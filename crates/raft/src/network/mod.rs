//! What nodes say to each other, over gRPC.

mod client;
mod coalesce;
mod condition;
pub(crate) mod forward;
pub(crate) mod header;
mod in_flight;
mod listen;
mod reversion;
mod serving;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use client::{Link, PeerClient, connect};
pub use condition::Condition;
pub(crate) use condition::version_of;
pub(crate) use header::Caller;
pub use listen::listen;
pub use serving::PEER_CONNECTIONS_MAX;
pub(crate) use serving::bind;

use parking_lot::Mutex;
use ringfence_tls::Connector;
use ringfence_wal::Fs;

use self::forward::Forwarder;
use self::reversion::{Reversions, Watermark};
use crate::types::incarnation::Incarnation;
use crate::types::reply::LeaderHint;
use crate::types::type_config::{Peer, TypeConfig};

/// The most bytes of one message between nodes. An append carries up to 2 MiB of entries and one
/// more, a call up to a command and its answer.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Window sizes of a connection: tiny frames must not use up the budget that guards against floods
/// of them, which is half the connection's window.
pub(crate) const CONNECTION_WINDOW: u32 = 64 << 20;
/// Window of one stream.
pub(crate) const STREAM_WINDOW: u32 = 4 << 20;
/// How often a silent connection is asked whether it is alive.
pub(crate) const KEEP_ALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(2);
/// How long the answer to that may take.
pub(crate) const KEEP_ALIVE_MAX: std::time::Duration = std::time::Duration::from_secs(2);

type PeerKey = (u64, Incarnation, String);

/// A node's ways to its peers; connections are shared by everything that talks to a peer.
pub(crate) struct Transport {
    caller: Caller,
    files: Arc<dyn Fs>,
    tls: Option<Connector>,
    links: Mutex<BTreeMap<PeerKey, Arc<Link>>>,
    reversions: Reversions,
    forwarders: Mutex<BTreeMap<PeerKey, Arc<Forwarder>>>,
}

impl Transport {
    pub(crate) fn new(caller: Caller, files: Arc<dyn Fs>, tls: Option<Connector>) -> Self {
        Self {
            caller,
            files,
            tls,
            links: Mutex::default(),
            reversions: Reversions::default(),
            forwarders: Mutex::default(),
        }
    }

    /// The connections to a peer. They are opened when they are first used.
    pub(crate) fn link(&self, node_id: u64, peer: &Peer) -> Arc<Link> {
        let key = (node_id, peer.incarnation, peer.peer_address.clone());
        let mut links = self.links.lock();
        // An id at another address or incarnation is a former one.
        links.retain(|other, _| other.0 != node_id || *other == key);
        let open = || {
            let (files, tls) = (self.files.clone(), self.tls.as_ref());
            let watermark = Watermark::new(self.reversions.clone());
            Arc::new(Link::new(
                &self.caller,
                files,
                tls,
                node_id,
                peer,
                watermark,
            ))
        };
        links.entry(key).or_insert_with(open).clone()
    }

    /// How often a follower of this node was found to have lost log that it had acknowledged.
    pub(crate) fn reversions(&self) -> u64 {
        self.reversions.load(Ordering::Relaxed)
    }

    /// The way for calls to a peer that leads.
    pub(crate) fn forwarder(&self, node_id: u64, peer: &Peer) -> Arc<Forwarder> {
        let key = (node_id, peer.incarnation, peer.peer_address.clone());
        let link = self.link(node_id, peer);
        let mut forwarders = self.forwarders.lock();
        forwarders.retain(|other, _| other.0 != node_id || *other == key);
        let hint = LeaderHint {
            node_id,
            client_address: peer.client_address.clone(),
        };
        forwarders
            .entry(key)
            .or_insert_with(|| Arc::new(Forwarder::new(hint, link)))
            .clone()
    }
}

/// Makes openraft's network clients.
pub(crate) struct PeerNetwork(pub(crate) Arc<Transport>);

impl openraft::RaftNetworkFactory<TypeConfig> for PeerNetwork {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Arc<Peer>) -> PeerClient {
        PeerClient::new(target, self.0.link(target, node), false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Arc<Peer>) -> PeerClient {
        PeerClient::new(target, self.0.link(target, node), true)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Arc<Peer>) -> PeerClient {
        PeerClient::new(target, self.0.link(target, node), false)
    }
}

/// Any headers: see [`header::check_any`]. A condition is read out of them, or none.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_headers(metadata: &tonic::metadata::MetadataMap, me: &Caller) {
    drop(Condition::announced(metadata));
    header::check_any(metadata, me);
}
