//! How much rights bind in a cluster that was formed without a mode: by a release that did not make it
//! part of the forming. Its mode is set as soon as all members know rights, by the node that founded it:
//! what other first members were given does not count, as in a cluster that is formed by this release.

use std::time::Duration;

use ringfence_core::{
    AccessChange, Called, Caller, ChangeAccess, ClusterId, Command, LEVEL_ACCESS, Mode, Outcome,
    Principal, Rejection, StateMachine,
};
use ringfence_raft::Node;
use tokio::sync::watch;
use tracing::{info, warn};

/// How many entries the log of a cluster may have that counts as just formed.
const ENTRIES_MAX: u64 = 1_000;
/// How often a node looks whether the mode can be set.
const LOOK: Duration = Duration::from_millis(100);
/// How long a node that is not the founder waits for the founder's mode, until it says that its own does
/// not count.
const FOUNDER_WAIT: Duration = Duration::from_secs(60);

/// What is to be done about the mode.
enum Step {
    Wait,
    Set { cluster: ClusterId, node: u64 },
    Done,
    TooLate,
}

fn next(machine: &StateMachine, node: Option<u64>) -> Step {
    let (Some(cluster), Some(node)) = (machine.cluster(), node) else {
        return Step::Wait;
    };
    if machine.access().set_at() > 0 {
        return Step::Done;
    }
    if machine.index() > ENTRIES_MAX {
        return Step::TooLate;
    }
    match machine.level() >= LEVEL_ACCESS {
        true => Step::Set { cluster, node },
        false => Step::Wait,
    }
}

/// The name of the node that founds a cluster of these first members, as `NAME` and address: the first by
/// name. `None` if there are none: then this node only joins one.
pub(crate) fn founder(first: &[(String, String)]) -> Option<&str> {
    first.iter().map(|(name, _)| name.as_str()).min()
}

/// Does what is to be done about a mode that this node was given, `name` among these first members.
pub(crate) async fn heed_mode(
    node: Node,
    mode: Mode,
    name: String,
    first: Vec<(String, String)>,
    stopping: watch::Receiver<bool>,
) {
    match founder(&first) {
        Some(founder) if founder == name => set_mode(node, mode, stopping).await,
        founder => compare_mode(node, mode, founder.unwrap_or("another node"), stopping).await,
    }
}

/// Says so if the cluster has not the mode that this node was given.
async fn compare_mode(node: Node, mode: Mode, founder: &str, mut stopping: watch::Receiver<bool>) {
    let stopped = stopping.wait_for(|stopping| *stopping);
    if tokio::time::timeout(FOUNDER_WAIT, stopped).await.is_ok() {
        return;
    }
    let is_formed = node.read(|machine| machine.cluster().is_some());
    if is_formed && node.access_mode() == Mode::Off {
        warn!(
            "--access {mode} of this node does not count: {founder} founded the cluster, whose mode \
             is off; `ringfence access mode {mode}` sets it"
        );
    }
}

/// Sets the mode of a young cluster in which rights were never set, as soon as all its members know
/// rights. A cluster whose founder said a mode other than `off` has it from its first entry on, and
/// there is nothing to do.
async fn set_mode(node: Node, mode: Mode, mut stopping: watch::Receiver<bool>) {
    let setting = async {
        loop {
            // What this node knows may be old: the log of a cluster may be longer than it seems.
            if node.read_barrier().await.is_ok() {
                let own = node.status().node_id;
                match node.read(|machine| next(machine, own)) {
                    Step::Done if node.access_mode() == Mode::Off => {
                        return warn!(
                            "--access {mode} does not count: the rights of this cluster were changed \
                             before, and its mode is off; `ringfence access mode {mode}` sets it"
                        );
                    }
                    Step::Done => return,
                    Step::TooLate => {
                        return warn!(
                            "--access {mode} counts when a cluster is formed; this one is older, and \
                             its mode is off: `ringfence access mode {mode}` sets it"
                        );
                    }
                    Step::Set { cluster, node: own } => propose(&node, cluster, own, mode).await,
                    Step::Wait => {}
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = setting => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

async fn propose(node: &Node, cluster: ClusterId, own: u64, mode: Mode) {
    let command = Command::ChangeAccess(ChangeAccess {
        cluster,
        based_on: 0,
        changes: vec![AccessChange::SetMode(mode)],
    });
    // Who configures a first member has its data directory too.
    let caller = Caller {
        principal: Principal::local(),
        token: None,
        node: own,
    };
    let called = Command::Called(Box::new(Called { caller, command }));
    match node.propose(called).await.map(|applied| applied.outcome) {
        Ok(Outcome::AccessChanged { .. }) => info!(%mode, "the cluster was formed with this mode"),
        Ok(Outcome::Rejected(Rejection::StaleAccess { .. })) => {}
        Ok(outcome) => warn!(?outcome, %mode, "the mode is not set yet"),
        Err(error) => tracing::debug!(%error, %mode, "the mode is not set yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_founder_is_the_first_by_name_and_a_node_that_joins_is_none() {
        let members = ["n2", "n10", "n1"].map(|name| (name.to_owned(), format!("{name}:7421")));
        assert_eq!(founder(&members), Some("n1"));
        assert_eq!(founder(&[]), None);
    }
}
