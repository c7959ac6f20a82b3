//! Who leads at the end of a run.

use ringfence_raft::Voters;

use crate::observe::Remains;

/// The node that leads in the newest term, and the voters that it knows.
pub(super) fn of_the_leader(remains: &[Remains]) -> Option<(&Remains, &Voters)> {
    let leader = remains.iter().max_by_key(|left| left.leads)?;
    leader.leads?;
    Some((leader, leader.voters.as_ref()?))
}
