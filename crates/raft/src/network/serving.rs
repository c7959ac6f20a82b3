//! The peer port.

use std::net::SocketAddr;

use futures_util::StreamExt;
use ringfence_proto::raft::peers_server::PeersServer;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use super::server::PeerService;
use super::{
    CONNECTION_WINDOW, KEEP_ALIVE_EVERY, KEEP_ALIVE_MAX, MESSAGE_BYTES_MAX, STREAM_WINDOW,
};

/// A bound peer port that is not served yet.
pub(crate) struct PeerServer {
    listener: TcpListener,
}

/// Binds the peer port.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<(PeerServer, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((PeerServer { listener }, bound))
}

impl PeerServer {
    /// Serves until the task is aborted; streams between nodes have no end to wait for.
    pub(crate) async fn run(self, service: PeerService) {
        let incoming = TcpListenerStream::new(self.listener).map(without_delay);
        let service = PeersServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let served = Server::builder()
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
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

/// tonic sets this only on connections that it accepts itself.
fn without_delay(accepted: std::io::Result<TcpStream>) -> std::io::Result<TcpStream> {
    let stream = accepted?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
