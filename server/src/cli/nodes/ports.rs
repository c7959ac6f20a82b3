//! Where the nodes of a cluster on loopback listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use crate::cli::{Failure, exit};

/// The distance between two nodes' client ports: room for the peer and HTTP ports and for reading
/// a port number as "node so-and-so".
const NODE_STEP: u16 = 10;

/// The three ports of each node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ports {
    /// Node `i` listens for clients at `base + 10 (i - 1)`, for peers one above, for HTTP two
    /// above.
    From(u16),
    /// Any that are free.
    Free,
}

/// The client, peer and HTTP address of one node.
pub(crate) type Addresses = [SocketAddr; 3];

/// Keeps ports for the nodes for as long as it lives, also while a node is down: a socket that is
/// bound and does not listen lets another listen there that says `SO_REUSEADDR`, as servers do, and
/// keeps the system from giving the port to a program that asks for any.
#[derive(Debug)]
pub(crate) struct Held {
    _sockets: Vec<TcpSocket>,
}

impl Ports {
    /// The addresses of `count` nodes, and what keeps them free for the nodes.
    ///
    /// # Errors
    /// If one is taken, or the last one would be above 65,535.
    pub(crate) fn assign(self, count: u8) -> Result<(Vec<Addresses>, Held), Failure> {
        let mut held = Vec::new();
        let mut hold = |port: u16| -> Result<SocketAddr, Failure> {
            let (socket, address) = bind(port).map_err(|cause| taken(port, &cause))?;
            held.push(socket);
            Ok(address)
        };
        let mut nodes = Vec::new();
        for number in 0..u16::from(count) {
            let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 3];
            for (above, address) in (0..).zip(&mut addresses) {
                *address = match self {
                    Self::Free => hold(0)?,
                    Self::From(base) => hold(at(base, number * NODE_STEP + above)?)?,
                };
            }
            nodes.push(addresses);
        }
        Ok((nodes, Held { _sockets: held }))
    }
}

fn bind(port: u16) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

fn at(base: u16, above: u16) -> Result<u16, Failure> {
    base.checked_add(above).ok_or_else(|| {
        Failure::usage(format!(
            "port {base} leaves no room: port {base} + {above} is above 65535"
        ))
        .hint("choose a lower one with --port")
    })
}

fn taken(port: u16, cause: &io::Error) -> Failure {
    let message = format!("cannot listen on 127.0.0.1:{port}: {cause}");
    Failure::new(exit::SYSTEM, "PORT_IN_USE", message)
        .hint("stop what runs there (another `ringfence dev`?), or choose another with --port")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_range_beyond_the_last_port_is_refused() {
        let refused = Ports::From(65_530)
            .assign(3)
            .expect_err("there is no port 65540");
        assert_eq!(refused.exit, exit::USAGE);
    }

    #[test]
    fn free_ports_are_all_different_and_kept_for_the_nodes() {
        let (addresses, held) = Ports::Free.assign(5).expect("loopback has free ports");
        let addresses = addresses.concat();
        let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), 15);
        // A node listens there, ends, and listens there again.
        for _ in 0..2 {
            TcpListener::bind(addresses[0]).expect("the port is kept for it");
        }
        drop(held);
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = taken.local_addr().expect("an address").port();
        let refused = Ports::From(port).assign(1).expect_err("the port is taken");
        assert!(
            refused.message.contains(&port.to_string()),
            "{}",
            refused.message
        );
    }
}
