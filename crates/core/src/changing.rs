//! Changes of a lease, and its places among the deadlines and among the leases to be served.

use core::num::NonZeroU64;
use ringfence_planted::{Bug, planted};

use crate::event::Event;
use crate::lease::{Lease, LeaseDue};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::time::ClusterTime;

impl StateMachine {
    /// Changes a lease and then puts it where its new state wants it: among those to be served, and
    /// among the deadlines. `None` if there is no such lease.
    pub(crate) fn change_lease<R>(
        &mut self,
        name: &LeaseName,
        change: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let lease = self.state.leases.get_mut(name)?;
        let (before, user) = (lease.due(), lease.user());
        let result = change(lease);
        // At its end, and once: whatever has waited for longer is served first, and a name that stood
        // there twice would be served twice.
        if lease.wants_serving() && lease.unserved.is_none() {
            lease.unserved = NonZeroU64::new(self.state.unserved.push(name.clone()));
        }
        let (after, first) = (lease.due(), lease.first_waiter());
        self.deadlines.move_lease(name, before, after);
        // While a session holds it, or waits and no block keeps it from it, it counts for that one.
        if before.is_some() || after.is_some() {
            self.keep_name(name, (user, first), before, after);
        }
        if before != after
            && let Some(due) = after
            && !self.is_at(LEVEL_REPEATS)
        {
            let over = due.over(self.settings().idle_retention);
            self.state.looks.look(name, over);
        }
        Some(result)
    }

    /// The same for a lease that may not be there yet. The change gives a new one to a session, or
    /// puts one into its queue.
    pub(crate) fn change_or_make_lease(
        &mut self,
        name: &LeaseName,
        change: impl FnOnce(&mut Lease),
    ) {
        if self.leases.get(name).is_none() {
            self.state.leases.insert(name.clone(), Lease::default());
        }
        self.change_lease(name, change);
    }

    /// Takes away a block whose time is over.
    pub(crate) fn lift_block(&mut self, name: &LeaseName) {
        let now = self.time();
        self.change_lease(name, |lease| lease.lift_block(now));
    }

    /// Below [`LEVEL_REPEATS`]: lifts the block of a lease, or forgets it, if its time was over when it
    /// was to be looked at.
    pub(crate) fn look_at(&mut self, at: ClusterTime, name: &LeaseName) {
        let retention = self.settings().idle_retention;
        match self.leases.get(name).and_then(Lease::due) {
            // It changed since. If its true time has come too, it is looked at again in its turn.
            Some(due) if due.over(retention) > at => {
                self.state.looks.look(name, due.over(retention));
            }
            Some(LeaseDue::Block(_)) => self.lift_block(name),
            Some(LeaseDue::Idle(_)) => self.forget(name),
            None => {}
        }
    }

    /// Forgets an idle lease; of its floor only that it was at most the greatest forgotten one.
    pub(crate) fn forget(&mut self, name: &LeaseName) {
        let Some(lease) = self.state.leases.remove(name) else {
            return;
        };
        // Where a new name displaces it, its own time has not come: it still stands there.
        self.deadlines.move_lease(name, lease.due(), None);
        self.keep_name(name, (None, None), lease.due(), None);
        if let Some(place) = lease.unserved {
            // Its waiters left before its turn came, in a quiet time or a storm. What is named in
            // that list has to be there.
            self.state.unserved.remove(&place.get());
        }
        let header = &mut self.state.header;
        if !planted(Bug::FloorForgottenForGood) {
            header.forgotten = header.forgotten.max(lease.floor);
        }
        if let Some(floor) = lease.floor {
            self.events.push(Event::Forgotten {
                name: name.clone(),
                floor,
            });
        }
    }
}
