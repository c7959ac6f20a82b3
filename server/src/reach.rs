//! Who is served while no rights bind: a port that other machines reach serves `local` alone until the
//! cluster's mode is set.
//!
//! While the mode is `off` every caller may do anything, make itself administrator too. `--access` says
//! what an operator wants; the mode is replicated, and a node that joins or starts again may find another
//! one. So the flag lets the node start, and its applied state opens the ports.

use std::net::SocketAddr;
use std::time::Duration;

use ringfence_access::Peer;
use ringfence_core::Mode;
use ringfence_planted::{Bug, planted};
use ringfence_proto::Refusal;
use ringfence_raft::Node;
use ringfence_services::is_health;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::Access;

/// When a caller that was refused may find the port open, and how often a node looks whether it is.
const LOOK: Duration = Duration::from_secs(1);

/// What opens a port while the mode is `off`.
const NEXT: &str = "on the machine of the node, `ringfence access mode enforced --endpoints \
                    unix:DATA_DIR/admin.sock` opens the port once rules exist; if the network keeps \
                    strangers out, start the node with --allow-anonymous";

/// What stands before the callers of a port.
#[derive(Clone)]
pub(crate) struct Reach {
    /// `None` if they are served whatever the mode.
    guarded: Option<Node>,
}

/// Whether other machines reach this address.
pub(crate) fn is_reached(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

impl Reach {
    /// Of a port that listens at these addresses.
    pub(crate) fn of(
        addresses: impl IntoIterator<Item = SocketAddr>,
        access: &Access,
        node: &Node,
    ) -> Self {
        let trusted = planted(Bug::ReachByTheFlag) && access.mode != Mode::Off;
        let is_guarded =
            addresses.into_iter().any(is_reached) && !access.allow_anonymous && !trusted;
        Self {
            guarded: is_guarded.then(|| node.clone()),
        }
    }

    /// Fine if callers are served: then they are for as long as this node runs, so that an
    /// administrator who sets the mode back to `off` shuts no caller out. Else why not, for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(node) = &self.guarded else {
            return Ok(());
        };
        if node.access_mode() != Mode::Off || node.mode_was_set() {
            return Ok(());
        }
        Err(match node.status().cluster {
            None => {
                "this node belongs to no cluster yet, so it does not know whether rights bind; \
                     other machines reach it, so it serves none of them before it does"
                    .to_owned()
            }
            Some(_) => format!(
                "the cluster's mode is off, in which every caller may do anything, and other machines \
                 reach this node, so it serves none of them; {NEXT}"
            ),
        })
    }

    /// Refuses a request for this path while the port is closed. Health is for all callers.
    ///
    /// # Errors
    /// [`Refusal`] says what opens the port. Nothing was done.
    pub(crate) fn admit(&self, peer: &Peer, path: &str) -> Result<(), Refusal> {
        if peer.is_admin_socket() || is_health(path) {
            return Ok(());
        }
        let closed = self.check();
        closed.map_err(|why| Refusal::unavailable(why, None, LOOK))
    }

    /// Logs that a node of a cluster serves no other machine, and when it does again.
    pub(crate) async fn report(self, mut stopping: watch::Receiver<bool>) {
        let Some(node) = self.guarded.clone() else {
            return;
        };
        let mut was_closed = false;
        loop {
            match self.check() {
                Err(why) if !was_closed && node.status().cluster.is_some() => {
                    was_closed = true;
                    warn!("{why}");
                }
                Err(_) => {}
                Ok(()) => {
                    if was_closed {
                        info!(mode = %node.access_mode(), "other machines are served from now on");
                    }
                    return;
                }
            }
            if timeout(LOOK, stopping.wait_for(|stopping| *stopping))
                .await
                .is_ok()
            {
                return;
            }
        }
    }
}
