//! A node's standing among the members: how one that came later gets its vote, and what keeps a
//! vote from one that came with an empty directory.

use std::time::Duration;

use ringfence_raft::{Member, Node};
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// How often a node without a vote looks whether it can have one.
const LOOK: Duration = Duration::from_millis(200);

/// What a node is among the members that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is no member yet, as far as it knows.
    None,
    /// It has a vote.
    Voter,
    /// It follows without a vote, under this id.
    Learner(u64),
    /// It follows without a vote, and another member of its name has one: its directory was empty
    /// when it came.
    Bereft {
        /// Its own id.
        node_id: u64,
        /// The id of the member whose data are lost.
        former: u64,
    },
}

impl Standing {
    /// What `node` is now.
    pub(crate) fn of(node: &Node) -> Self {
        let status = node.status();
        let node_id = status.node_id;
        node_id.map_or(Self::None, |node_id| {
            Self::among(&node.members(), node_id, &status.name)
        })
    }

    fn among(members: &[Member], node_id: u64, name: &str) -> Self {
        match members.iter().find(|member| member.node_id == node_id) {
            None => Self::None,
            Some(me) if me.voter => Self::Voter,
            Some(_) => {
                let former = members
                    .iter()
                    .find(|other| other.voter && other.node_id != node_id && other.name == name);
                match former.map(|former| former.node_id) {
                    Some(former) => Self::Bereft { node_id, former },
                    None => Self::Learner(node_id),
                }
            }
        }
    }
}

/// What somebody has to do about a node whose data are lost.
pub(crate) fn remedy(node_id: u64, former: u64) -> String {
    format!(
        "it came with an empty data directory, and the member that had its name, node {former}, \
         still has the vote: if those data are lost for good, run `ringfence cluster promote \
         {node_id} --replaces {former}`, or start it with --replace-on-data-loss"
    )
}

/// Watches over a node until it has a vote: asks for one if it is to have one, and says what is
/// to be done if another has it.
pub(crate) async fn seek_vote(
    node: Node,
    join_as_voter: bool,
    replace_on_data_loss: bool,
    mut stopping: watch::Receiver<bool>,
) {
    let mut told = false;
    loop {
        match Standing::of(&node) {
            Standing::Voter => return,
            Standing::Bereft { node_id, former } if !replace_on_data_loss && !told => {
                told = true;
                warn!("this node has no vote: {}", remedy(node_id, former));
            }
            // Its name is nobody else's, so nobody else loses a vote by this.
            Standing::Learner(node_id) if join_as_voter => {
                match node.promote_member(node_id, None).await {
                    Ok(()) => info!(node_id, "this node has a vote"),
                    Err(error) => debug!(%error, "this node has no vote yet"),
                }
            }
            Standing::None | Standing::Learner(_) | Standing::Bereft { .. } => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_raft::Incarnation;

    use super::*;

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
        let bereft = Standing::Bereft {
            node_id: 7,
            former: 2,
        };
        assert_eq!(Standing::among(&members, 7, "b"), bereft);
        assert_eq!(Standing::among(&members, 8, "c"), Standing::Learner(8));
        assert_eq!(Standing::among(&members, 9, "d"), Standing::None);
    }
}
