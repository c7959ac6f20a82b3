//! Messages to the service manager that started this process, by systemd's protocol: a datagram to
//! the socket that `NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;

use tracing::warn;

/// The variable that names the socket: a path, or `@` and an abstract name of Linux.
const SOCKET: &str = "NOTIFY_SOCKET";

/// What a service manager learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The log is open and the ports are served. Whether a cluster leads is for probes to ask: a
    /// first node would wait here for the others.
    Ready,
    /// The process stops.
    Stopping,
}

impl Notice {
    fn text(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1\n",
            Self::Stopping => b"STOPPING=1\n",
        }
    }

    /// Sends it. A failure is logged and stops nothing.
    pub(crate) fn send(self) {
        let Some(socket) = env::var_os(SOCKET) else {
            return;
        };
        if let Err(error) = self.send_to(&socket) {
            warn!(?socket, %error, "the service manager cannot be notified by {SOCKET}");
        }
    }

    fn send_to(self, socket: &OsStr) -> io::Result<()> {
        let datagram = UnixDatagram::unbound()?;
        // The manager may not read for a while, and a node does not wait for it.
        datagram.set_nonblocking(true)?;
        match abstract_address(socket) {
            None => datagram.send_to(self.text(), socket)?,
            Some(address) => datagram.send_to_addr(self.text(), &address?)?,
        };
        Ok(())
    }
}

/// The address of an abstract name, which Linux alone has.
#[cfg(target_os = "linux")]
fn abstract_address(socket: &OsStr) -> Option<io::Result<std::os::unix::net::SocketAddr>> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    let name = socket.as_bytes().strip_prefix(b"@")?;
    Some(std::os::unix::net::SocketAddr::from_abstract_name(name))
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_socket: &OsStr) -> Option<io::Result<std::os::unix::net::SocketAddr>> {
    None
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    use super::*;

    #[test]
    fn an_abstract_socket_gets_the_notice() {
        let name = format!("ringfence-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notice::Ready
            .send_to(OsStr::new(&format!("@{name}")))
            .unwrap();
        let mut got = [0; 64];
        let length = manager.recv(&mut got).unwrap();
        assert_eq!(&got[..length], b"READY=1\n");
    }

    #[test]
    fn a_socket_that_is_gone_is_an_error() {
        let gone = Notice::Stopping.send_to(OsStr::new("/nowhere/notify"));
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
