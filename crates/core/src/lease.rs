//! Leases: at most one grant each, a queue, and what keeps a free one from being granted.

use alloc::boxed::Box;

use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::name::HolderData;
use crate::snapshot::{Block, GrantRecord};
use crate::time::{ClusterTime, Millis};
use crate::tree::Tree;

/// A lease name's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    /// The greatest token granted for the name.
    pub(crate) floor: Option<FencingToken>,
    /// The grant in force: exclusive, so one at most.
    pub(crate) grant: Option<Box<GrantRecord>>,
    /// Why nobody is granted it although nobody holds it.
    pub(crate) blocked: Option<Box<Block>>,
    /// Since when nobody has held it or waited for it; means nothing while somebody does.
    pub(crate) idle_since: ClusterTime,
    /// See [`Lease::armed`].
    pub(crate) armed_at: ClusterTime,
    pub(crate) is_armed: bool,
    /// By place, so the first one is the head.
    pub(crate) queue: Tree<u64, Waiter>,
    /// Whether it stands in the list of leases whose queue wants to be served.
    pub(crate) unserved: bool,
}

// See the same of a session.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Lease>() <= 64);

/// A place in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) request: RequestNumber,
    pub(crate) until: ClusterTime,
    pub(crate) data: HolderData,
    pub(crate) lock_delay: Millis,
}

impl Lease {
    /// Where it stands among the deadlines; never later than the first of its own.
    pub(crate) fn armed(&self) -> Option<ClusterTime> {
        self.is_armed.then_some(self.armed_at)
    }

    pub(crate) fn arm(&mut self, at: Option<ClusterTime>) {
        self.armed_at = at.unwrap_or_default();
        self.is_armed = at.is_some();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.grant.is_none() && self.queue.is_empty() && self.blocked.is_none()
    }

    /// Whether its queue can be served but for the cluster's quiet time.
    pub(crate) fn wants_serving(&self) -> bool {
        self.grant.is_none() && !self.queue.is_empty() && self.blocked.is_none()
    }

    /// When its block is over, or its name forgotten.
    pub(crate) fn due(&self, idle_retention: Millis) -> Option<ClusterTime> {
        match &self.blocked {
            Some(block) => Some(block.over()),
            None => self
                .is_idle()
                .then(|| self.idle_since.after(idle_retention)),
        }
    }

    pub(crate) fn waiters(&self) -> u32 {
        // The limit of waiters is a u32.
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}

impl Block {
    /// When nothing blocks any more.
    pub(crate) fn over(&self) -> ClusterTime {
        match self.revoked {
            Some(revoked) => self.lock_delay_until.max(revoked.until),
            None => self.lock_delay_until,
        }
    }
}
