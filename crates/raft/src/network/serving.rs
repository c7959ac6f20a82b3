//! The peer port.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt;
use ringfence_proto::raft::peers_server::{Peers, PeersServer};
use ringfence_tls::{Acceptor, Port, PortFigures, PortLimits};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Server;

use super::listen::listen;
use super::{
    CONNECTION_WINDOW, KEEP_ALIVE_EVERY, KEEP_ALIVE_MAX, MESSAGE_BYTES_MAX, STREAM_WINDOW,
};
use crate::platform::place::{self, Exchange};
use crate::types::stop::StopSignal;

/// The most connections of other nodes at a time. Each node of a cluster has a few: for entries,
/// heartbeats, votes, snapshots and forwarded calls.
pub const PEER_CONNECTIONS_MAX: usize = 256;

/// How many calls another node may cancel before this one has seen them begin; h2 closes the
/// connection behind it. A node that was paused finds many at once: heartbeats, votes, forwarded calls
/// and probes that were given up meanwhile.
const CANCELLED_UNSEEN_MAX: usize = 1_024;

/// A bound peer port that is not served yet.
pub(crate) struct PeerServer {
    /// `None` at a simulated place.
    listener: Option<TcpListener>,
    /// What others know, to find this node at a simulated place.
    address: SocketAddr,
}

/// Binds the peer port.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<(PeerServer, SocketAddr)> {
    if place::current().is_some() {
        let listener = None;
        return Ok((PeerServer { listener, address }, address));
    }
    let listener = listen(address)?;
    let address = listener.local_addr()?;
    let listener = Some(listener);
    Ok((PeerServer { listener, address }, address))
}

impl PeerServer {
    /// Serves until the task is aborted; streams between nodes have no end to wait for, so they
    /// break when the node stops. `service` answers the calls; this module knows nothing of it.
    pub(crate) async fn run(
        self,
        service: impl Peers,
        stop: StopSignal,
        tls: Option<Acceptor>,
        figures: Arc<PortFigures>,
    ) {
        let service = PeersServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let Some(listener) = self.listener else {
            return serve_at_place(self.address, service);
        };
        let limits = PortLimits::http2(PEER_CONNECTIONS_MAX);
        let port = Port::new("peer", listener, tls, limits, figures);
        // Each breaks when the node stops. tonic runs each on a task that no other code can end, and
        // a peer that still had one would go on talking to a node that is gone, even when the next one
        // listens on the same port.
        let incoming = port.incoming().map(move |accepted| {
            let stop = stop.clone();
            let stopped = async move { drop(stop.stopped().await) };
            accepted.map(|accepted| accepted.until(stopped))
        });
        let served = Server::builder()
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .http2_max_pending_accept_reset_streams(Some(CANCELLED_UNSEEN_MAX))
            .http2_keepalive_interval(Some(KEEP_ALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_MAX))
            .add_service(service)
            .serve_with_incoming(incoming)
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the peer port is served no more");
        }
    }
}

/// At a simulated place there are calls, and no connections under them that this node would see.
fn serve_at_place(address: SocketAddr, service: PeersServer<impl Peers>) {
    let answer = move |request: http::Request<Body>| -> Exchange {
        let mut service = service.clone();
        Box::pin(async move {
            match service.call(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            }
        })
    };
    let _ = place::ask(|place| place.serve(&address.to_string(), Arc::new(answer)));
}
