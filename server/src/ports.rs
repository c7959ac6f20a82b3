//! Ports with limits, as axum takes them.

use std::io;
use std::net::SocketAddr;

use futures_util::StreamExt;
use ringfence_tls::{Connection, Incoming, Port};

/// The connections of a port that speaks HTTP/1.
pub(crate) struct Http1 {
    incoming: Incoming,
    address: SocketAddr,
}

impl Http1 {
    /// The port, and the address that it listens on.
    pub(crate) fn new(port: Port, address: SocketAddr) -> Self {
        let incoming = port.incoming();
        Self { incoming, address }
    }
}

impl axum::serve::Listener for Http1 {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.incoming.next().await {
            Some(Ok(connection)) => (connection, self.address),
            // The port accepts for as long as it is asked, and logs its failures itself.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
