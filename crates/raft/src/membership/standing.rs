//! What a node is among the members, and why it is not ready.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::list::Member;
use crate::types::type_config::StoredMembership;

/// What a node is among the members that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is no member yet, as far as it knows.
    None,
    /// It has a vote.
    Voter,
    /// It follows without a vote, under this id.
    Learner(u64),
    /// It follows without a vote, and another member of its name has one: its directory was empty
    /// when it came.
    DataLost {
        /// Its own id.
        node_id: u64,
        /// The id of the member whose data are lost.
        former: u64,
    },
}

impl Standing {
    /// What the node with this id and name is among these members.
    pub(crate) fn among(members: &[Member], node_id: u64, name: &str) -> Self {
        match members.iter().find(|member| member.node_id == node_id) {
            None => Self::None,
            Some(me) if me.voter => Self::Voter,
            Some(_) => {
                let former = members
                    .iter()
                    .find(|other| other.voter && other.node_id != node_id && other.name == name);
                match former.map(|former| former.node_id) {
                    Some(former) => Self::DataLost { node_id, former },
                    None => Self::Learner(node_id),
                }
            }
        }
    }
}

/// Why a node is not ready to serve clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It belongs to no cluster.
    NoCluster,
    /// It knows no leader.
    NoLeader {
        /// The newest term that it has seen.
        term: u64,
        /// How long ago it heard a leader, or had a majority as one; `None` if not since its start.
        heard: Option<Duration>,
    },
    /// It is to have a vote and has none yet.
    NoVote,
    /// It came with an empty directory, and a member of its name has the vote.
    DataLost {
        /// Its own id.
        node_id: u64,
        /// The id of the member whose data are lost.
        former: u64,
    },
    /// Its state may be older than allowed.
    Stale {
        /// The leader that it follows, itself included.
        leader: u64,
        /// How old its state may be; `None` if that is not known.
        age: Option<Duration>,
    },
    /// The file system of its data directory has no room for more log; see
    /// [`crate::NodeMetrics::wal_no_room`].
    NoRoom,
    /// It leads alone, and its disk has finished nothing for this long although entries wait.
    DiskBehind {
        /// For how long.
        lag: Duration,
    },
}

impl NotReady {
    /// Where the documents say what to do about it.
    #[must_use]
    pub fn runbook(&self) -> &'static str {
        match self {
            Self::NoCluster => "deploy/OPERATE.md#forming",
            Self::NoLeader { .. } | Self::Stale { .. } => "deploy/RECOVERY.md#the-majority-is-down",
            Self::NoVote => "deploy/OPERATE.md#members",
            Self::DataLost { .. } => "deploy/RECOVERY.md#one-disk-is-lost",
            Self::NoRoom => "deploy/RECOVERY.md#a-disk-is-full",
            Self::DiskBehind { .. } => "deploy/OPERATE.md#finding-what-is-wrong",
        }
    }
}

/// What to do about a node whose data are lost.
pub(crate) fn remedy(node_id: u64, former: u64) -> String {
    format!(
        "it came with an empty data directory, and the member that had its name, node {former}, \
         still has the vote: if those data are lost for good, run `ringfence cluster promote \
         {node_id} --replaces {former}`, or start it with --replace-on-data-loss"
    )
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCluster => f.write_str(
                "it belongs to no cluster yet: it waits for all members of --initial-cluster, or \
                 for a member of --join",
            ),
            Self::NoLeader { term, heard } => {
                write!(f, "it knows no leader in term {term}")?;
                match heard {
                    Some(ago) => {
                        write!(f, ", and the last one was heard {} ms ago", ago.as_millis())
                    }
                    None => f.write_str(", and has heard none since its start"),
                }
            }
            Self::NoVote => f.write_str("it has no vote yet"),
            Self::DataLost { node_id, former } => f.write_str(&remedy(*node_id, *former)),
            Self::Stale {
                leader,
                age: Some(age),
            } => write!(
                f,
                "its state may be {} ms old: leader {leader} has confirmed nothing newer",
                age.as_millis()
            ),
            Self::Stale { leader, age: None } => {
                write!(f, "leader {leader} has not confirmed its state yet")
            }
            Self::NoRoom => f.write_str(
                "the file system of its data directory has no room for more log: free space, and \
                 it goes on without an operator",
            ),
            Self::DiskBehind { lag } => write!(
                f,
                "it leads alone, and its disk has finished nothing for {} ms",
                lag.as_millis()
            ),
        }
    }
}

/// Whose votes count, as one node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voters {
    /// One set of node ids. Two while a change is between its steps: then a majority of each is
    /// needed, and the second set is what the change leads to.
    pub sets: Vec<BTreeSet<u64>>,
    /// Whether the entry with these sets is known to be committed.
    pub committed: bool,
}

impl Voters {
    pub(crate) fn of(newest: &StoredMembership, committed: &StoredMembership) -> Self {
        Self {
            sets: newest.membership().get_joint_config().clone(),
            committed: newest.log_id() == committed.log_id(),
        }
    }

    /// Whether no change of the voters is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sets.len() == 1 && self.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::incarnation::Incarnation;

    fn member(node_id: u64, name: &str, voter: bool) -> Member {
        Member {
            node_id,
            name: name.to_owned(),
            peer_address: String::new(),
            client_address: String::new(),
            incarnation: Incarnation::from_slice(&[node_id as u8; 16]).unwrap(),
            voter,
            leader: false,
            matched: None,
            condition: None,
            heard: None,
        }
    }

    #[test]
    fn a_learner_whose_name_has_a_vote_elsewhere_has_lost_its_data() {
        let members = [
            member(1, "a", true),
            member(2, "b", true),
            member(7, "b", false),
            member(8, "c", false),
        ];
        assert_eq!(Standing::among(&members, 1, "a"), Standing::Voter);
        let lost = Standing::DataLost {
            node_id: 7,
            former: 2,
        };
        assert_eq!(Standing::among(&members, 7, "b"), lost);
        assert_eq!(Standing::among(&members, 8, "c"), Standing::Learner(8));
        assert_eq!(Standing::among(&members, 9, "d"), Standing::None);
    }
}
