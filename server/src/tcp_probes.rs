//! Probes of TCP, which find a connection whose other side has gone without a word: a machine that
//! lost its power, a firewall that forgot the connection. HTTP/2 has pings of its own; HTTP/1 has
//! none, and a caller that waits for a lease sends nothing for as long as it waits.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};

use crate::limits::{PING_INTERVAL, PING_TIMEOUT, TCP_PROBES_MAX};

/// Probes the connections that this listener accepts from now on: they have its options.
pub(crate) fn enable(listener: &impl AsFd) -> io::Result<()> {
    set_socket_keepalive(listener, true)?;
    set_tcp_keepidle(listener, PING_INTERVAL)?;
    set_tcp_keepintvl(listener, PING_TIMEOUT)?;
    set_tcp_keepcnt(listener, TCP_PROBES_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn an_accepted_connection_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        enable(&listener).unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_connected, (accepted, _)) = (connected.unwrap(), accepted.unwrap());
        assert!(socket_keepalive(&accepted).unwrap());
        assert_eq!(tcp_keepidle(&accepted).unwrap(), PING_INTERVAL);
    }
}
