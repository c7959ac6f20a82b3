//! Listening, on both families of addresses where that is asked for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 1024;

/// Listens on an address.
///
/// `[::]:PORT` means every interface, IPv4 and IPv6, whatever the system's `net.ipv6.bindv6only`
/// says. Where IPv6 is switched off it falls back to `0.0.0.0:PORT`. Any other address is taken
/// literally.
///
/// # Errors
/// As `bind(2)` and `listen(2)`: the port is in use, or the address is not one of this machine.
///
/// # Panics
/// Outside of a Tokio runtime.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_with(address, open)
}

fn listen_with<T>(
    address: SocketAddr,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    match open(address) {
        Err(error) if all_interfaces(address) && lacks_ipv6(&error) => {
            let fallback = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            tracing::info!(%error, wanted = %address, listen = %fallback, "no IPv6 here; listening on IPv4 only");
            open(fallback)
        }
        other => other,
    }
}

/// Whether the address means every interface of both families.
fn all_interfaces(address: SocketAddr) -> bool {
    address.is_ipv6() && address.ip().is_unspecified()
}

/// A kernel without IPv6 refuses the socket; one that has it disabled may refuse the address.
fn lacks_ipv6(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    code.is_some_and(|code| code == Errno::AFNOSUPPORT || code == Errno::ADDRNOTAVAIL)
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if all_interfaces(address) {
        set_ipv6_v6only(&socket, false)?;
    }
    // A node that is restarted finds connections of its previous life in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::net::TcpStream;

    use super::*;

    const ALL: &str = "[::]:0";

    /// Says loudly if this machine cannot show what is tested.
    fn has_ipv6() -> bool {
        let there = std::net::TcpListener::bind("[::1]:0").is_ok();
        if !there {
            eprintln!("\nNOT TESTED: this machine has no IPv6 loopback address\n");
        }
        there
    }

    #[tokio::test]
    async fn all_interfaces_are_reached_over_both_families() {
        if !has_ipv6() {
            return;
        }
        let listener = listen(ALL.parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "[::1]"] {
            let address: SocketAddr = format!("{host}:{port}").parse().unwrap();
            let (connected, accepted) =
                tokio::join!(TcpStream::connect(address), listener.accept());
            assert!(connected.is_ok() && accepted.is_ok(), "{address}");
        }
    }

    #[tokio::test]
    async fn one_address_is_taken_literally() {
        for host in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = listen(host.parse().unwrap()).unwrap();
            assert!(listener.local_addr().unwrap().is_ipv4(), "{host}");
        }
        if has_ipv6() {
            let listener = listen("[::1]:0".parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
        }
    }

    /// A kernel without IPv6 cannot be had on every machine, so its answers stand in for it.
    #[test]
    fn without_ipv6_all_interfaces_are_those_of_ipv4() {
        for code in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let asked = RefCell::new(Vec::new());
            let open = |address: SocketAddr| {
                asked.borrow_mut().push(address.to_string());
                if address.is_ipv6() {
                    return Err(io::Error::from(code));
                }
                Ok(address)
            };
            let got = listen_with("[::]:7420".parse().unwrap(), open).unwrap();
            assert_eq!(got.to_string(), "0.0.0.0:7420");
            assert_eq!(*asked.borrow(), ["[::]:7420", "0.0.0.0:7420"]);
        }
    }

    #[test]
    fn a_taken_port_and_a_named_address_have_no_fallback() {
        let refused = |code: Errno| move |_: SocketAddr| Err::<(), _>(io::Error::from(code));
        let taken = listen_with("[::]:7420".parse().unwrap(), refused(Errno::ADDRINUSE));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let named = listen_with("[::1]:7420".parse().unwrap(), refused(Errno::ADDRNOTAVAIL));
        assert_eq!(named.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
