//! For how long no majority has stood behind a leader.

use std::sync::Arc;
use std::time::Duration;

use crate::leader::term::Route;
use crate::read::reading;
use crate::shared::inner::Inner;

/// No majority stands behind a leader, as far as a node knows: nothing is granted, and nothing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// How long ago one was last known to; `None` if not since the node was started.
    pub since: Option<Duration>,
}

/// What the node knows. A follower that hears its leader does not know whether that one has a majority,
/// so it asks.
pub(crate) async fn silence(inner: &Arc<Inner>, within: Duration) -> Option<Silence> {
    let running = inner.running.get()?;
    let route = inner.route.borrow().clone();
    let heard = inner.majority_ago();
    let last = match route {
        Route::Leader(leading) if leading.members.has_one_voter() => return None,
        // A node that led when it ended leads again when it starts, before any other one answers.
        Route::Leader(_) => running.quorum_acked_ago(&inner.awake).or(heard),
        Route::NoLeader => return Some(Silence { since: heard }),
        Route::Follower(_) if is_within(heard, within) => {
            let confirmed = inner.newest_ago();
            let has_majority = is_within(confirmed, within) || is_confirmed(inner, within).await;
            return (!has_majority).then_some(Silence { since: confirmed });
        }
        Route::Follower(_) => heard,
    };
    (!is_within(last, within)).then_some(Silence { since: last })
}

fn is_within(last: Option<Duration>, within: Duration) -> bool {
    last.is_some_and(|last| last <= within)
}

/// Whether the leader proves in this time that it has a majority.
async fn is_confirmed(inner: &Arc<Inner>, within: Duration) -> bool {
    let read = tokio::time::timeout(within, reading::barrier(inner)).await;
    matches!(read, Ok(Ok(())))
}
