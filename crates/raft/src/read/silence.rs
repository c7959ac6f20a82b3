//! For how long no majority has stood behind a leader.

use std::time::Duration;

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
    if inner.leads_alone() {
        return None;
    }
    // A leader that was heard has perhaps had no time yet to confirm an index. A node that hears none
    // after its start follows the one that it followed before, or leads again, and knows of no majority.
    let last = since.or_else(|| inner.leader_first_heard_ago());
    let is_silent = last.is_none_or(|last| last > within);
    is_silent.then_some(Silence { since })
}
