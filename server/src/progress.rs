//! Whether this node is of use to clients: judged by progress, not by being alive.

use ringfence_raft::Node;

use crate::limits::READY_AGE_MAX;

/// Fine if this node can serve; else why not, for people.
pub(crate) fn check(node: &Node) -> Result<(), String> {
    let status = node.status();
    if status.cluster.is_none() {
        return Err(
            "it belongs to no cluster yet: it waits for all members of --initial-cluster, \
                    or for a member of --join"
                .to_owned(),
        );
    }
    let Some(leader) = status.leader else {
        return Err(format!("it knows no leader in term {}", status.term));
    };
    match node.age() {
        Some(age) if age <= READY_AGE_MAX => Ok(()),
        Some(age) => Err(format!(
            "it has heard nothing from leader {} for {} ms",
            leader.node_id,
            age.as_millis()
        )),
        None => Err(format!(
            "it has heard nothing from leader {} yet",
            leader.node_id
        )),
    }
}
