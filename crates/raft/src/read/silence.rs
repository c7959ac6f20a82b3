//! For how long no majority has stood behind a leader, as far as a node knows without asking.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::leader::term::Route;
use crate::shared::inner::Inner;

/// No majority stands behind a leader, as far as a node knows: nothing is granted, and nothing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// How long ago one was last known to; `None` if not since the node was started.
    pub since: Option<Duration>,
}

/// What the node knows. A follower that hears its leader does not know whether that one has a majority:
/// it is made to ask, and the next call knows.
pub(crate) fn silence(inner: &Inner, within: Duration) -> Option<Silence> {
    let running = inner.running.get()?;
    let route = inner.route.borrow().clone();
    let last = inner.majority_ago();
    match route {
        Route::Leader(leading) if leading.members.has_one_voter() => None,
        Route::Leader(_) => {
            let since = running.quorum_acked_ago(&inner.awake)?;
            let since = Some(since);
            (since > Some(within)).then_some(Silence { since })
        }
        Route::NoLeader => Some(Silence { since: last }),
        Route::Follower(_) => {
            inner.age_wanted.store(true, Ordering::Relaxed);
            if last.is_none_or(|last| last > within) {
                return Some(Silence { since: last });
            }
            let failing = inner.failing_for()?;
            let since = Some(inner.newest_ago().unwrap_or(failing));
            (since > Some(within)).then_some(Silence { since })
        }
    }
}
