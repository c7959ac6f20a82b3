//! For how long no majority has stood behind a leader.

use std::time::Duration;

use crate::leader::term::Route;
use crate::shared::inner::Inner;

/// No majority stands behind a leader, as far as a node knows: nothing is granted, and nothing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// How long ago one was last known to; `None` if not since the node was started.
    pub since: Option<Duration>,
}

/// What the node knows. That a follower hears its leader does not count: such a leader may have no majority.
/// What counts is that it confirmed an index for a read, which each follower asks for again and again.
pub(crate) fn silence(inner: &Inner, within: Duration) -> Option<Silence> {
    inner.running.get()?;
    inner.note_majority();
    let since = inner.majority_ago();
    let last = match &*inner.route.borrow() {
        Route::Leader(leading) if leading.members.has_one_voter() => return None,
        Route::NoLeader => return Some(Silence { since }),
        // A node that led when it ended leads again when it starts, before any other one answers.
        Route::Leader(_) => since,
        // A leader that was heard has perhaps had no time yet to confirm an index. One that was not
        // is the one that this node followed before it ended.
        Route::Follower(_) => since.or_else(|| inner.leader_ago().and(inner.seated_ago())),
    };
    let is_silent = last.is_none_or(|last| last > within);
    is_silent.then_some(Silence { since })
}
