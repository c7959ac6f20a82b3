//! A change of the voters that is broken off between its two entries; for tests.

use std::collections::{BTreeMap, BTreeSet};

use openraft::Precondition;

use crate::membership::error::MembershipError;
use crate::shared::inner::Running;
use crate::types::type_config::{Membership, Payload};

/// Writes the first entry of a change of the voters and not the second one; for tests.
pub(super) async fn change_by_half(
    running: &Running,
    to: BTreeSet<u64>,
) -> Result<(), MembershipError> {
    let now = running.membership();
    let nodes = now.nodes().map(|(id, peer)| (*id, peer.clone()));
    let sets = now.membership().get_joint_config().iter().cloned();
    let joint = Membership::new(
        sets.chain([to]).collect(),
        nodes.collect::<BTreeMap<_, _>>(),
    );
    let joint = joint.map_err(|error| MembershipError::refused(error.to_string()))?;
    let condition = Precondition::LastMembershipLogId {
        last_membership_log_id: *now.log_id(),
    };
    let written = running
        .raft
        .append_membership(joint, Payload::Blank, [condition]);
    drop(written.await?);
    Ok(())
}
