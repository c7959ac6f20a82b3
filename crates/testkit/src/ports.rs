//! Ports of loopback for servers that a test starts, stops and starts again.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port that is the test's for as long as this lives, also while no server listens there.
///
/// The socket is bound and does not listen: a server that says `SO_REUSEADDR`, as servers do, may
/// listen there, and the system gives the port to no caller that asks for any.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _held: TcpSocket,
}

impl Port {
    /// Any free one, on 127.0.0.1.
    ///
    /// # Panics
    /// If the system has none.
    #[must_use]
    pub fn any() -> Self {
        let held = TcpSocket::new_v4().expect("a socket");
        held.set_reuseaddr(true).expect("it is new");
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        held.bind(any).expect("a free port");
        Self {
            address: held.local_addr().expect("it is bound"),
            _held: held,
        }
    }

    /// 127.0.0.1 and the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_may_listen_again_and_again_and_nobody_else_is_given_the_port() {
        let port = Port::any();
        for _ in 0..2 {
            drop(TcpListener::bind(port.address()).unwrap());
        }
        let others: Vec<Port> = (0..100).map(|_| Port::any()).collect();
        assert!(others.iter().all(|other| other.number() != port.number()));
    }
}
