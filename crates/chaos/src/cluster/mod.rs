//! The nodes of the run: processes of the real binary, each at an address of its own.

mod disk;
mod members;
mod node;
mod torn;
mod view;

pub(crate) use disk::{Disk, Ext4};
pub(crate) use members::{Asking, Change, Membership};
pub(crate) use node::{Ended, Ipv4Peer, Making, Node, stopped, without_settings};
pub(crate) use torn::tear;
pub(crate) use view::Views;

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// Where clients are served.
pub(crate) const CLIENT_PORT: u16 = 7420;
/// Where other nodes are served.
pub(crate) const PEER_PORT: u16 = 7421;
/// Where figures are served.
pub(crate) const HTTP_PORT: u16 = 7422;

/// Where a process lives: its address, and its network, if it has one of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) address: Ipv4Addr,
    pub(crate) network: Option<RawFd>,
}

/// The name of the node at this place.
pub(crate) fn node_name(place: usize) -> String {
    format!("n{}", place + 1)
}
