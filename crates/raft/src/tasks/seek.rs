//! How a node without a vote gets one: it asks the leader until it has it.

use std::sync::Arc;
use std::time::Duration;

use ringfence_proto::raft as pb;

use crate::membership::standing::{Standing, Voters, remedy};
use crate::requests::change::{By, asked_by, change};
use crate::shared::inner::{Inner, Running};

/// How often a node without a vote looks whether it can have one.
const LOOK: Duration = Duration::from_millis(200);

/// Asks for a vote until this node has one, if its configuration says that it is to have one; else
/// says once what to do when its data were lost.
pub(crate) async fn seek_vote(inner: Arc<Inner>, running: Arc<Running>) {
    let node_id = running.caller.seat.node_id;
    let mut warned = false;
    loop {
        match inner.standing() {
            // A vote that is not committed may yet be lost with the leader that gave it.
            Standing::Voter if is_settled(&running) => return,
            Standing::Voter => {}
            Standing::DataLost { node_id, former } if !inner.config.replace_on_data_loss => {
                if !warned {
                    warned = true;
                    tracing::warn!(
                        "this node has no vote: {}; see deploy/RECOVERY.md#one-disk-is-lost",
                        remedy(node_id, former)
                    );
                }
            }
            // No other member loses a vote by the promotion of a learner with a name of its own.
            Standing::Learner(_) if !inner.config.join_as_voter => {}
            Standing::Learner(_) | Standing::DataLost { .. } => {
                let promote = pb::change_members::Promote {
                    node_id,
                    replaces: 0,
                };
                let promote = pb::change_members::Change::Promote(promote);
                let wish = asked_by(By::Itself, promote, false);
                match change(&inner.route, inner.config.timing, wish).await {
                    Ok(_) => tracing::info!(node_id, "this node has a vote"),
                    Err(error) => tracing::debug!(%error, "this node has no vote yet"),
                }
            }
            Standing::None => {}
        }
        // Repeated without memory: the leader answers a promotion that is already done as done.
        tokio::time::sleep(LOOK).await;
    }
}

fn is_settled(running: &Running) -> bool {
    let (newest, committed) = (running.membership(), running.committed_membership());
    Voters::of(&newest, &committed).is_settled()
}
