//! When leases are looked at below [`LEVEL_REPEATS`](crate::LEVEL_REPEATS), as release 0.1.0 does it.
//!
//! A lease that comes to be blocked or idle is given the time at which that is over; an earlier time
//! that it has already stays. A retention that is changed afterwards moves none of them. So these
//! times decide which names are forgotten when, and what follows from that: they belong to the state
//! and go into snapshots until the level is reached.

use crate::name::LeaseName;
use crate::time::ClusterTime;
use crate::tree::Tree;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    times: Tree<LeaseName, ClusterTime>,
    order: Tree<(ClusterTime, LeaseName), ()>,
}

impl Looks {
    /// Has a lease looked at not later than at this time.
    pub(crate) fn look(&mut self, name: &LeaseName, at: ClusterTime) {
        if let Some(known) = self.time(name) {
            if known <= at {
                return;
            }
            self.order.remove(&(known, name.clone()));
        }
        self.times.insert(name.clone(), at);
        self.order.insert((at, name.clone()), ());
    }

    /// The first time.
    pub(crate) fn first(&self) -> Option<ClusterTime> {
        self.order.first().map(|((at, _), ())| *at)
    }

    /// Takes the first one; among equal times that is the first by name.
    pub(crate) fn pop(&mut self) -> Option<(ClusterTime, LeaseName)> {
        let ((at, name), ()) = self.order.pop_first()?;
        self.times.remove(&name);
        Some((at, name))
    }

    /// When a lease is looked at, if it is.
    pub(crate) fn time(&self, name: &LeaseName) -> Option<ClusterTime> {
        self.times.get(name).copied()
    }
}
