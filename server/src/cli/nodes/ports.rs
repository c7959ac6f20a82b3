//! Where the nodes of a cluster on loopback listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

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

impl Ports {
    /// The addresses of `count` nodes; each was free a moment ago.
    ///
    /// # Errors
    /// If one is taken, or the last one would be above 65,535.
    pub(crate) fn assign(self, count: u8) -> Result<Vec<Addresses>, Failure> {
        // All are held until all are found, so that no two are the same.
        let mut held = Vec::new();
        let mut hold = |port: u16| -> Result<SocketAddr, Failure> {
            let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
            let listener = bound.map_err(|cause| taken(port, &cause))?;
            let address = listener.local_addr().map_err(|cause| taken(port, &cause))?;
            held.push(listener);
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
        Ok(nodes)
    }
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
    Failure::new(exit::UNAVAILABLE, "PORT_IN_USE", message)
        .hint("stop what runs there (another `ringfence dev`?), or choose another with --port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_range_beyond_the_last_port_is_refused() {
        let refused = Ports::From(65_530)
            .assign(3)
            .expect_err("there is no port 65540");
        assert_eq!(refused.exit, exit::USAGE);
    }

    #[test]
    fn free_ports_are_all_different() {
        let addresses = Ports::Free
            .assign(5)
            .expect("loopback has free ports")
            .concat();
        let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), 15);
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
