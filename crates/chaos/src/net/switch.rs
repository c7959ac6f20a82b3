//! The switch itself: one thread that takes frames from ports and puts them out at others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use super::netlink::Mac;
use super::verdict::Rules;
use crate::clock::now_ns;

/// No frame is longer; with segmentation off they are far shorter.
const FRAME_BYTES: usize = 65_536;
/// So many are taken from one port before the next has its turn.
const BURST: usize = 64;
/// So many may be under way late; more are lost, as in a full router.
const LATE_MAX: usize = 100_000;

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];

pub(super) struct Switch {
    sockets: Vec<OwnedFd>,
    macs: Vec<Mac>,
    rules: Arc<Mutex<Rules>>,
    stopped: OwnedFd,
    late: BinaryHeap<Reverse<Late>>,
    sent: u64,
}

/// A frame that is delivered later; of two for one instant the older goes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    at: u64,
    number: u64,
    to: usize,
    frame: Vec<u8>,
}

impl Switch {
    pub(super) fn new(
        sockets: Vec<OwnedFd>,
        macs: Vec<Mac>,
        rules: Arc<Mutex<Rules>>,
        stopped: OwnedFd,
    ) -> Self {
        Self {
            sockets,
            macs,
            rules,
            stopped,
            late: BinaryHeap::new(),
            sent: 0,
        }
    }

    /// Forwards until the other end of `stopped` is closed.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut frame = vec![0; FRAME_BYTES];
        loop {
            let ready = self.wait()?;
            if ready.last() == Some(&true) {
                return Ok(());
            }
            for (port, ready) in ready.iter().enumerate().take(self.sockets.len()) {
                if *ready {
                    self.take(port, &mut frame)?;
                }
            }
            self.deliver_due();
        }
    }

    /// Waits for a frame, for the next late one's time, or for the end. Says which sockets have
    /// something to tell; the last is `stopped`.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut fds: Vec<PollFd<'_>> = self
            .sockets
            .iter()
            .chain([&self.stopped])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let limit = self.late.peek().map(|Reverse(late)| {
            let left = late.at.saturating_sub(now_ns());
            Timespec {
                tv_sec: (left / 1_000_000_000).cast_signed(),
                tv_nsec: (left % 1_000_000_000).cast_signed(),
            }
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn take(&mut self, from: usize, frame: &mut [u8]) -> io::Result<()> {
        for _ in 0..BURST {
            let length =
                match rustix::net::recv(&self.sockets[from], &mut *frame, RecvFlags::DONTWAIT) {
                    Ok((length, _)) => length,
                    Err(rustix::io::Errno::AGAIN) => return Ok(()),
                    // The device went down: its namespace is being taken away.
                    Err(rustix::io::Errno::NETDOWN | rustix::io::Errno::INTR) => continue,
                    Err(cause) => return Err(cause.into()),
                };
            self.forward(from, &frame[..length]);
        }
        Ok(())
    }

    fn forward(&mut self, from: usize, frame: &[u8]) {
        let (Some(to), Some(kind)) = (frame.get(..6), frame.get(12..14)) else {
            return;
        };
        if kind == ARP {
            for port in (0..self.sockets.len()).filter(|port| *port != from) {
                if to[0] & 1 == 1 || to == self.macs[port] {
                    self.send(port, frame);
                }
            }
            return;
        }
        let Some(to) = self.macs.iter().position(|mac| to == mac) else {
            return;
        };
        if kind != IPV4 || to == from {
            return;
        }
        let now = now_ns();
        let deliveries = {
            let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            rules.judge((from, to), frame.len(), now)
        };
        for at in [deliveries.first, deliveries.second].into_iter().flatten() {
            if at <= now {
                self.send(to, frame);
            } else if self.late.len() < LATE_MAX {
                self.sent += 1;
                self.late.push(Reverse(Late {
                    at,
                    number: self.sent,
                    to,
                    frame: frame.to_vec(),
                }));
            }
        }
    }

    fn deliver_due(&mut self) {
        let now = now_ns();
        while let Some(Reverse(next)) = self.late.peek() {
            if next.at > now {
                return;
            }
            if let Some(Reverse(due)) = self.late.pop() {
                self.send(due.to, &due.frame);
            }
        }
    }

    /// A frame that finds no room is lost, as on any wire.
    fn send(&self, to: usize, frame: &[u8]) {
        rustix::net::send(&self.sockets[to], frame, SendFlags::DONTWAIT).ok();
    }
}
