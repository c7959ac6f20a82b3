//! Handing leadership over: by command, when a node stops, before the leader loses its vote, and
//! when its disk hangs.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use crate::leader::term::LeaderTerm;
use crate::membership::error::MembershipError;
use crate::membership::plan::successor;
use crate::membership::view::View;
use crate::store::state::Raft;

/// How long the successor may take to be seen as the leader.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

/// Asks a voter to lead: `to`, or the one that is furthest ahead if it is 0. From here on this
/// leader writes nothing more in its term.
pub(crate) async fn begin(raft: &Raft, view: &View, to: u64) -> Result<u64, MembershipError> {
    let target = successor(view, to)?;
    if target != view.me {
        let handed = raft.trigger().transfer_leader(target).await;
        handed.map_err(|fatal| MembershipError::unknown(fatal.to_string()))?;
    }
    Ok(target)
}

/// The same, and waits until another node leads. Says which.
pub(crate) async fn hand_over(leading: &LeaderTerm, to: u64) -> Result<u64, MembershipError> {
    let me = leading.node_id;
    let mut view = leading.members.view();
    view.look_at_conditions(&leading.transport);
    if begin(leading.raft(), &view, to).await? == me {
        return Ok(me);
    }
    // openraft answers when the request is sent, not when the other node leads.
    let mut metrics = leading.raft().server_metrics();
    let waited = tokio::time::timeout(HAND_OVER_MAX, async {
        loop {
            let leader = metrics.borrow_watched().current_leader;
            if let Some(leader) = leader.filter(|leader| *leader != me) {
                return Ok(leader);
            }
            if metrics.changed().await.is_err() {
                return Err(MembershipError::unknown("the node stops"));
            }
        }
    });
    let late = || {
        Err(MembershipError::unknown(
            "no other node is known to lead yet",
        ))
    };
    waited.await.unwrap_or_else(|_| late())
}
