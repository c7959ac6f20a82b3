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

/// What a node says of itself and of the members. No rights are needed for it, and no lease, principal or
/// other name of a caller is in it.
const OF_THE_NODE: [&str; 2] = [
    "/ringfence.v1.Cluster/Status",
    "/ringfence.v1.Cluster/ListMembers",
];

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
    ///
    /// What the node's disk held when it started opens nothing: in the cluster the mode may be `off`
    /// since, and the leader would carry out what a caller asks here.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(node) = &self.guarded else {
            return Ok(());
        };
        let why = match node.mode_was_set() {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(format!(
                    "the cluster's mode is off, in which every caller may do anything, and other \
                     machines reach this node, so it serves none of them; {NEXT}"
                ));
            }
            None if node.status().cluster.is_none() => "belongs to no cluster yet",
            None => "has not caught up since its start",
        };
        Err(format!(
            "this node {why}, so it does not know whether rights bind; other machines reach it, so it \
             serves none of them before it does; `ringfence cluster status` with all nodes as \
             --endpoints shows whether a majority answers"
        ))
    }

    /// Whether a node that has not caught up answers a request for this path all the same: without a
    /// majority it never does, and that is when an operator asks what each node knows.
    fn is_answered_alone(&self, path: &str) -> bool {
        let node = self
            .guarded
            .as_ref()
            .filter(|_| OF_THE_NODE.contains(&path));
        node.is_some_and(|node| node.mode_was_set().is_none() && node.holds_a_mode())
    }

    /// Refuses a request for this path while the port is closed. Health is for all callers, and what the
    /// node knows of itself while it cannot know the mode.
    ///
    /// # Errors
    /// [`Refusal`] says what opens the port. Nothing was done.
    pub(crate) fn admit(&self, peer: &Peer, path: &str) -> Result<(), Refusal> {
        if peer.is_admin_socket() || is_health(path) {
            return Ok(());
        }
        match self.check() {
            Err(why) if !self.is_answered_alone(path) => Err(Refusal::unavailable(why, None, LOOK)),
            _ => Ok(()),
        }
    }

    /// Logs that a node of a cluster serves no other machine, and when it does again.
    pub(crate) async fn report(self, mut stopping: watch::Receiver<bool>) {
        let Some(node) = self.guarded.clone() else {
            return;
        };
        let mut was_closed = false;
        loop {
            match self.check() {
                Err(why) if !was_closed && node.mode_was_set().is_some() => {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_core::{
        AccessChange, Called, Caller, ChangeAccess, Command, LEVEL_ACCESS, Outcome, Principal,
    };
    use ringfence_proto::v1::Reason;
    use ringfence_raft::NodeConfig;
    use ringfence_testkit::ports::Port;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A cluster of one, formed in the mode `off`.
    async fn node(dir: &std::path::Path) -> Node {
        let port = Port::any();
        let node = Node::start(NodeConfig {
            peer_listen: port.address(),
            peer_port_is_local: true,
            initial_cluster: vec![("n1".to_owned(), port.address().to_string())],
            token_floor: Some(0),
            ..NodeConfig::new("n1", dir)
        })
        .await
        .unwrap();
        let knows_rights = async {
            while node.read(|machine| machine.level()) < LEVEL_ACCESS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, knows_rights).await.unwrap();
        node.read_barrier().await.unwrap();
        node
    }

    async fn set(node: &Node, mode: Mode) {
        let (cluster, based_on) = node.read(|machine| {
            let set_at = machine.access().set_at();
            (machine.cluster().unwrap(), set_at)
        });
        let command = Command::ChangeAccess(ChangeAccess {
            cluster,
            based_on,
            changes: vec![AccessChange::SetMode(mode)],
        });
        let caller = Caller {
            principal: Principal::local(),
            token: None,
            node: 1,
        };
        let called = Command::Called(Box::new(Called { caller, command }));
        let outcome = node.propose(called).await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::AccessChanged { .. }));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_mode_opens_a_port_and_no_flag_does() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path()).await;
        let [everywhere, loopback, mapped] = ["[::]:1", "127.0.0.1:2", "[::ffff:127.0.0.1]:3"]
            .map(|address| address.parse::<SocketAddr>().unwrap());
        let reach = |addresses: &[SocketAddr], mode, allow_anonymous| {
            let access = Access {
                mode,
                allow_anonymous,
                ..Access::default()
            };
            Reach::of(addresses.iter().copied(), &access, &node)
        };
        let (bare, path) = (Peer::bare(), "/ringfence.v1.Access/ChangeAccess");
        for mode in [Mode::Permissive, Mode::Enforced] {
            let closed = reach(&[loopback, everywhere], mode, false);
            for path in [
                path,
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                "/grpc.health.v1.Healthy/Check",
                "/v1/leases",
                "/apis/coordination.k8s.io/v1/leases",
                "/console/v1/leases",
                "",
            ] {
                let refusal = closed.admit(&bare, path).unwrap_err();
                assert_eq!(refusal.reason, Reason::Unavailable, "{path}");
            }
            assert!(closed.admit(&Peer::admin_socket(), path).is_ok());
            assert!(closed.admit(&bare, "/grpc.health.v1.Health/Check").is_ok());
            for open in [
                reach(&[loopback, mapped], mode, false),
                reach(&[everywhere], mode, true),
                reach(&[], mode, false),
            ] {
                assert!(open.admit(&bare, path).is_ok());
            }
        }

        let port = reach(&[everywhere], Mode::Enforced, false);
        set(&node, Mode::Permissive).await;
        set(&node, Mode::Off).await;
        assert!(port.admit(&bare, path).is_ok(), "no call came in between");
    }
}
