//! A network of namespaces joined by a switch that is this process.
//!
//! Each port has a namespace with one device, `eth0`, whose other end lies in the namespace of the
//! switch's thread, where nothing but the switch looks at it. Address resolution always passes, so
//! that a direction can be cut without cutting the other; of the rest every packet is judged.

mod netlink;
mod rule;
mod switch;
mod verdict;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use rule::{Counters, Link, Rule};

use crate::sys::{self, Leave, Offload};
use netlink::{Mac, Netlink};
use switch::Switch;
use verdict::Rules;

/// The most ports of one network.
pub const PORTS_MAX: usize = 200;
/// The device inside each namespace.
const INNER: &str = "eth0";
const NETWORK: [u8; 3] = [10, 99, 0];
/// The last octet of the first port's address.
const FIRST: u8 = 11;

/// Namespaces, each with one cable to the switch. Dropping it takes everything down, once the
/// processes inside have ended.
pub struct Fabric {
    ports: Vec<Port>,
    rules: Arc<Mutex<Rules>>,
    /// Closing it stops the switch.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

struct Port {
    namespace: OwnedFd,
    address: Ipv4Addr,
}

/// A fault's hold on packets: see [`Fabric::impose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imposed(u64);

impl Fabric {
    /// Makes a network with so many ports, at most [`PORTS_MAX`].
    ///
    /// The calling process needs the right to make network namespaces: as root, or within a user
    /// namespace of its own.
    ///
    /// # Errors
    /// What the kernel refuses, and which step that was.
    pub fn build(ports: usize, seed: u64) -> io::Result<Self> {
        if ports > PORTS_MAX {
            let why = format!("{ports} ports; a network has at most {PORTS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut made = Vec::new();
        for number in 0..ports {
            made.push(Port {
                namespace: on_thread(namespace)?,
                address: address(number),
            });
        }
        let rules = Arc::new(Mutex::new(Rules::new(seed)));
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let namespaces: Vec<OwnedFd> = made
            .iter()
            .map(|port| port.namespace.try_clone())
            .collect::<io::Result<_>>()?;
        let (ready, is_ready) = std::sync::mpsc::channel();
        let judging = Arc::clone(&rules);
        let thread = std::thread::Builder::new()
            .name("switch".to_owned())
            .spawn(move || {
                let switch = plug(&namespaces, judging, stopped);
                let (said, switch) = match switch {
                    Ok(switch) => (Ok(()), Some(switch)),
                    Err(cause) => (Err(cause), None),
                };
                ready.send(said).ok();
                switch.map_or(Ok(()), Switch::run)
            })?;
        let fabric = Self {
            ports: made,
            rules,
            stop: Some(stop),
            thread: Some(thread),
        };
        let plugged = is_ready.recv();
        plugged.unwrap_or_else(|_| Err(io::Error::other("the switch's thread has ended")))?;
        for port in 0..ports {
            fabric.within(port, move || equip(address(port)))??;
        }
        Ok(fabric)
    }

    /// The address inside a port's namespace.
    #[must_use]
    pub fn address(&self, port: usize) -> Ipv4Addr {
        self.ports[port].address
    }

    /// The descriptor of a port's namespace, for a process that is to live there.
    #[must_use]
    pub fn namespace(&self, port: usize) -> RawFd {
        self.ports[port].namespace.as_raw_fd()
    }

    /// Runs `work` on a thread inside a port's namespace and waits for it. What it opens stays
    /// there, also threads that it starts.
    ///
    /// # Errors
    /// If the thread cannot be started or not enter.
    pub fn within<T: Send + 'static>(
        &self,
        port: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let namespace = self.ports[port].namespace.try_clone()?;
        on_thread(move || {
            sys::enter_network(namespace.as_fd())?;
            Ok(work())
        })
    }

    /// Begins to treat the packets of these directions so, on top of what is done to them already.
    pub fn impose(&self, links: impl IntoIterator<Item = (Link, Rule)>) -> Imposed {
        Imposed(self.rules().impose(links))
    }

    /// Ends it, and says what it has done.
    pub fn lift(&self, imposed: Imposed) -> Counters {
        self.rules().lift(imposed.0)
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self, imposed: Imposed) -> Counters {
        self.rules().counters(imposed.0)
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric")
            .field("ports", &self.ports.len())
            .finish_non_exhaustive()
    }
}

/// Opens `namespace` on a thread of its own, and leaves there for good whatever it changes of
/// itself.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let thread = std::thread::Builder::new().spawn(work)?;
    let done = thread.join();
    done.unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
}

/// Makes a network namespace that lasts as long as its descriptor is open, or a process is in it.
fn namespace() -> io::Result<OwnedFd> {
    sys::unshare(Leave::Network).map_err(|cause| step("make a network namespace", &cause))?;
    Ok(std::fs::File::open("/proc/thread-self/ns/net")?.into())
}

/// On the switch's thread: draws a cable to each namespace.
fn plug(namespaces: &[OwnedFd], rules: Arc<Mutex<Rules>>, stopped: OwnedFd) -> io::Result<Switch> {
    sys::unshare(Leave::Network).map_err(|cause| step("make a network namespace", &cause))?;
    let netlink = Netlink::open()?;
    let mut sockets = Vec::new();
    let mut macs = Vec::new();
    for (number, namespace) in namespaces.iter().enumerate() {
        let outer = format!("port{number}");
        let mac = mac(number);
        netlink
            .cable(&outer, INNER, mac, namespace.as_fd())
            .map_err(|cause| step("make a pair of veth devices", &cause))?;
        netlink.up(&outer)?;
        let socket = sys::packets(sys::device_index(&outer)?);
        sockets.push(socket.map_err(|cause| step("open a packet socket", &cause))?);
        macs.push(mac);
    }
    Ok(Switch::new(sockets, macs, rules, stopped))
}

/// Inside a port's namespace: makes its devices work.
fn equip(address: Ipv4Addr) -> io::Result<()> {
    let netlink = Netlink::open()?;
    netlink.up("lo")?;
    // The kernel leaves checksums and cutting to a device that is no device: what the switch
    // forwards would be refused as damaged, and every connection hang.
    for offload in [
        Offload::TxChecksum,
        Offload::TcpSegmentation,
        Offload::GenericSegmentation,
    ] {
        sys::offload_off(INNER, offload)
            .map_err(|cause| step(&format!("turn {offload:?} off"), &cause))?;
    }
    // Not every kernel has it, and what it joins arrives whole all the same.
    sys::offload_off(INNER, Offload::GenericReceive).ok();
    netlink.address(INNER, address)?;
    netlink.up(INNER)
}

fn step(what: &str, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("cannot {what}: {cause}"))
}

fn last_octet(port: usize) -> u8 {
    FIRST + u8::try_from(port).unwrap_or(u8::MAX - FIRST)
}

fn address(port: usize) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, last_octet(port))
}

/// A link-layer address of our own making, which the second bit of its first byte says.
fn mac(port: usize) -> Mac {
    [0x02, 0x52, 0x46, 0, 0, last_octet(port)]
}

/// A namespace that a borrowed descriptor names, for callers that hold one themselves.
impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}
