//! Leases: at most one grant each, a queue, and what keeps a free one from being granted.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::event::Granted;
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::time::{ClusterTime, Millis, WallTime};
use crate::tree::Tree;

/// A grant in force.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantRecord {
    /// Its token.
    pub token: FencingToken,
    /// Its holder.
    pub session: SessionId,
    /// The request that was answered with it.
    pub request: RequestNumber,
    /// What the holder publishes.
    pub data: HolderData,
    /// For how long the lease is granted to no session after a dirty end.
    pub lock_delay: Millis,
    /// The entry that granted it.
    pub index: u64,
    /// When, for people.
    pub since: WallTime,
}

/// Why a lease that no session holds is granted to none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The lock-delay ends here.
    pub lock_delay_until: ClusterTime,
    /// A revoked holder that may not know yet.
    pub revoked: Option<RevokedHolder>,
}

/// A revoked holder that may not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RevokedHolder {
    /// The session that held the lease.
    pub session: SessionId,
    /// The token that was revoked.
    pub token: FencingToken,
    /// From here on it cannot believe any more.
    pub until: ClusterTime,
}

/// A lease name's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    /// The greatest token granted for the name.
    pub(crate) floor: Option<FencingToken>,
    /// The grant in force: exclusive, so one at most.
    pub(crate) grant: Option<Box<GrantRecord>>,
    /// Why it is granted to no session although none holds it.
    pub(crate) blocked: Option<Box<Block>>,
    /// Since when no session has held it or waited for it; means nothing while one does.
    pub(crate) idle_since: ClusterTime,
    /// The token of the newest grant that an operator revoked, so that a repeated revoke is known
    /// as one.
    pub(crate) revoked: Option<FencingToken>,
    /// By place, so the first one is the head.
    pub(crate) queue: Tree<u64, Waiter>,
    /// Its place in the list of leases whose queue wants to be served, while it stands there.
    pub(crate) unserved: Option<NonZeroU64>,
}

/// What a lease waits for without a command; it stands among the deadlines accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseDue {
    /// Its block is over at this time.
    Block(ClusterTime),
    /// It has been idle since this time, and is forgotten one retention later.
    Idle(ClusterTime),
}

impl LeaseDue {
    /// When that is over.
    pub(crate) fn over(self, idle_retention: Millis) -> ClusterTime {
        match self {
            Self::Block(at) => at,
            Self::Idle(since) => since.after(idle_retention),
        }
    }
}

// See the same of a session.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Lease>() <= 64);

/// A request for a lease: in its queue, or about to be granted.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) request: RequestNumber,
    /// When its wait is over.
    pub(crate) until: ClusterTime,
    pub(crate) data: HolderData,
    pub(crate) lock_delay: Millis,
}

impl Lease {
    /// Whether a session holds it or waits for it.
    pub(crate) fn is_used(&self) -> bool {
        self.grant.is_some() || !self.queue.is_empty()
    }

    /// The session that uses it: its holder, or the last one that waits.
    pub(crate) fn user(&self) -> Option<SessionId> {
        let holder = self.grant.as_deref().map(|grant| grant.session);
        holder.or_else(|| self.first_waiter())
    }

    pub(crate) fn first_waiter(&self) -> Option<SessionId> {
        self.queue.first().map(|(_, waiter)| waiter.session)
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_used() && self.blocked.is_none()
    }

    /// Whether its queue can be served but for the cluster's quiet time.
    pub(crate) fn wants_serving(&self) -> bool {
        self.grant.is_none() && !self.queue.is_empty() && self.blocked.is_none()
    }

    /// Where it belongs among the deadlines.
    pub(crate) fn due(&self) -> Option<LeaseDue> {
        match &self.blocked {
            Some(block) => Some(LeaseDue::Block(block.over())),
            None => self.is_idle().then_some(LeaseDue::Idle(self.idle_since)),
        }
    }

    /// Takes away a block whose time is over.
    pub(crate) fn lift_block(&mut self, now: ClusterTime) {
        if self
            .blocked
            .as_ref()
            .is_some_and(|block| block.over() <= now)
        {
            self.blocked = None;
            self.idle_since = now;
        }
    }

    /// Takes a waiter out of the queue; if it was the last one, the idle time may begin.
    pub(crate) fn leave(&mut self, place: u64, now: ClusterTime) -> Option<Waiter> {
        let waiter = self.queue.remove(&place)?;
        if self.is_idle() {
            self.idle_since = now;
        }
        Some(waiter)
    }

    pub(crate) fn waiters(&self) -> u32 {
        // The limit of waiters is a u32.
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}

impl Block {
    /// When nothing blocks any more.
    pub(crate) fn over(&self) -> ClusterTime {
        let revoked = self.revoked.map(|revoked| revoked.until);
        self.lock_delay_until.max(revoked.unwrap_or_default())
    }
}

impl GrantRecord {
    /// The grant as events and answers show it.
    pub(crate) fn granted(&self, name: &LeaseName, identity: Identity) -> Granted {
        Granted {
            name: name.clone(),
            token: self.token,
            session: self.session,
            identity,
            data: self.data.clone(),
            request: self.request,
            index: self.index,
            since: self.since,
        }
    }
}
