//! Network devices and addresses, asked of the kernel in its own words: no program is needed.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::sys;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const LINK_NAMESPACE: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;

const UP: u32 = 1;
const HEADER_BYTES: usize = 16;
const IPV4: u8 = 2;
/// All addresses of a run are in one network of 256.
const PREFIX: u8 = 24;

/// A link-layer address.
pub(crate) type Mac = [u8; 6];

/// A socket to the kernel, of the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: OwnedFd,
}

/// A request in the making.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
        Self(bytes)
    }

    /// The fixed part of a request about a device.
    fn link(mut self, index: u32, flags: u32) -> Self {
        self.0.extend([0; 4]);
        self.0.extend(index.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// An attribute that consists of others.
    fn nested(mut self, kind: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        let mut whole = inner(self);
        let length = u16::try_from(whole.0.len() - start).unwrap_or(u16::MAX);
        whole.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        whole
    }
}

impl Netlink {
    /// Opens one in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = sys::netlink()?;
        Ok(Self { socket })
    }

    /// Makes a cable: one end, `outer`, here, the other, `inner`, in another namespace.
    pub(crate) fn cable(
        &self,
        outer: &str,
        inner: &str,
        mac: Mac,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let namespace = namespace.as_raw_fd().to_ne_bytes();
        let request = Request::new(NEW_LINK, CREATE | EXCLUSIVE)
            .link(0, 0)
            .attribute(LINK_NAME, outer.as_bytes())
            .nested(LINK_INFO, |info| {
                info.attribute(INFO_KIND, b"veth")
                    .nested(INFO_DATA, |data| {
                        data.nested(VETH_PEER, |peer| {
                            peer.link(0, 0)
                                .attribute(LINK_NAME, inner.as_bytes())
                                .attribute(LINK_ADDRESS, &mac)
                                .attribute(LINK_NAMESPACE, &namespace)
                        })
                    })
            });
        self.ask(request)
    }

    /// Switches a device on.
    pub(crate) fn up(&self, device: &str) -> io::Result<()> {
        let index = sys::device_index(device)?;
        self.ask(Request::new(NEW_LINK, 0).link(index, UP))
    }

    /// Gives a device an address.
    pub(crate) fn address(&self, device: &str, address: Ipv4Addr) -> io::Result<()> {
        let index = sys::device_index(device)?;
        let mut request = Request::new(NEW_ADDRESS, CREATE | EXCLUSIVE);
        request.0.extend([IPV4, PREFIX, 0, 0]);
        request.0.extend(index.to_ne_bytes());
        let octets = address.octets();
        self.ask(
            request
                .attribute(LOCAL_ADDRESS, &octets)
                .attribute(ADDRESS, &octets),
        )
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        let mut bytes = request.0;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        rustix::io::write(&self.socket, &bytes)?;
        let mut answer = [0; 4096];
        let length = rustix::io::read(&self.socket, &mut answer[..])?;
        let kind = answer[..length].get(4..6);
        let code = answer[..length].get(HEADER_BYTES..HEADER_BYTES + 4);
        match (kind, code) {
            (Some(kind), Some(code)) if kind == ERROR.to_ne_bytes() => {
                let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
                match code {
                    0 => Ok(()),
                    negative => Err(io::Error::from_raw_os_error(-negative)),
                }
            }
            _ => Err(io::Error::other("the kernel's answer makes no sense")),
        }
    }
}
