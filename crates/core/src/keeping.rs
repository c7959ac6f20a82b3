//! Names that no session holds, and the principals that they are kept for.
//!
//! Such a name keeps its floor for the retention of idle names. It counts for the principal of the
//! session that used it last, as a lease or a wait of it did before, so that no principal fills the
//! table with names that it used once. Where a principal has as many as it may have, its own idle
//! names go for the new ones. What is blocked cannot go and counts like a lease: for the principal
//! whose grant has left the block, also while others wait for it, and once, if that principal waits
//! for it itself or has yet to acknowledge its loss.

use ringfence_planted::{Bug, planted};

use crate::access::change::Mode;
use crate::access::principal::Principal;
use crate::access::usage::{Counts, Kept};
use crate::id::{FencingToken, SessionId};
use crate::lease::{Lease, LeaseDue};
use crate::level::LEVEL_RESTORE;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Limit, Rejection};

/// The most idle names that one new name displaces.
pub(crate) const FORGOTTEN_PER_NAME_MAX: u32 = 2;

impl StateMachine {
    /// Counts a lease that has changed: `user` is the session that used it before, `first` the first one
    /// in its queue now, and `from` and `to` are where it stood and stands among the deadlines.
    pub(crate) fn keep_name(
        &mut self,
        name: &LeaseName,
        (user, first): (Option<SessionId>, Option<SessionId>),
        from: Option<LeaseDue>,
        to: Option<LeaseDue>,
    ) {
        let known = self.state.kept.get(name).cloned();
        if let Some(known) = &known
            && let Some(due) = from
        {
            self.usages.let_go(known, name, due);
        }
        let kept = match (from, to) {
            (_, None) => None,
            (Some(_), Some(_)) if !planted(Bug::BlockPaidByWaiter) => known.clone(),
            (Some(_), Some(_)) => user.map_or(known.clone(), |user| self.keeping_for(user, name)),
            (None, Some(_)) => user.and_then(|user| self.keeping_for(user, name)),
        };
        let kept = kept.map(|kept| {
            let waits = self.is_of(first, &kept.of);
            Kept { waits, ..kept }
        });
        if let Some(kept) = &kept
            && let Some(due) = to
        {
            self.usages.keep(kept, name, due);
        }
        match kept {
            kept if kept == known => {}
            Some(kept) => drop(self.state.kept.insert(name.clone(), kept)),
            None => drop(self.state.kept.remove(name)),
        }
    }

    /// For whom a name is kept that this session used last. Below the level it counts for no principal,
    /// as in older releases.
    fn keeping_for(&self, user: SessionId, name: &LeaseName) -> Option<Kept> {
        if !self.is_at(LEVEL_RESTORE) || planted(Bug::IdleNamesUncounted) {
            return None;
        }
        let binds = self.access.mode() == Mode::Enforced;
        let owner = self.owner_of_known(user).cloned();
        let of = owner.or(binds.then(Principal::anonymous))?;
        // A revoke notes the loss before the grant ends.
        let lost = self.sessions.get(&user).and_then(|user| user.lost().last());
        let lost = lost.is_some_and(|lost| lost.name == *name && self.is_newest(name, lost.token));
        let lost = lost && !planted(Bug::RevokedCountsTwice);
        let waits = false;
        Some(Kept { of, lost, waits })
    }

    fn owner_of_known(&self, session: SessionId) -> Option<&Principal> {
        match self.sessions.get(&session) {
            Some(session) => session.owner.as_ref(),
            None => self.ended.get(session)?.owner.as_ref(),
        }
    }

    fn is_newest(&self, name: &LeaseName, token: FencingToken) -> bool {
        let floor = self.leases.get(name).and_then(|lease| lease.floor);
        floor == Some(token)
    }

    /// Whether the first one in a queue is of this principal. Others behind it are not looked at: there
    /// may be 100,000.
    fn is_of(&self, first: Option<SessionId>, principal: &Principal) -> bool {
        first.is_some_and(|first| named(self.owner_of_known(first)) == principal.as_str())
    }

    /// A session has acknowledged the loss of a grant, or it has ended, or has become another
    /// principal's: what it lost counts as a name again.
    pub(crate) fn count_loss_no_more(&mut self, name: &LeaseName, token: FencingToken) {
        if self.is_newest(name, token) {
            self.change_kept(name, |kept| kept.lost = false);
        }
    }

    /// A session that waits for a lease has become another principal's.
    pub(crate) fn count_wait(&mut self, name: &LeaseName) {
        let first = self.leases.get(name).and_then(Lease::first_waiter);
        let kept = self.state.kept.get(name);
        if let Some(waits) = kept.map(|kept| self.is_of(first, &kept.of)) {
            self.change_kept(name, |kept| kept.waits = waits);
        }
    }

    fn change_kept(&mut self, name: &LeaseName, change: impl FnOnce(&mut Kept)) {
        let due = self.leases.get(name).and_then(Lease::due);
        let (Some(known), Some(due)) = (self.state.kept.get(name).cloned(), due) else {
            return;
        };
        let mut kept = known.clone();
        change(&mut kept);
        if kept != known {
            self.usages.let_go(&known, name, due);
            self.usages.keep(&kept, name, due);
            self.state.kept.insert(name.clone(), kept);
        }
    }

    /// What counts for a principal. What has none counts for `anonymous`; below the level for none, as in
    /// older releases.
    pub(crate) fn counts_of(&self, principal: &Principal) -> Counts {
        let mut counts = self.usages.of(principal);
        let anonymous = principal.as_str() == Principal::ANONYMOUS;
        if anonymous && self.is_at(LEVEL_RESTORE) && !planted(Bug::UnprovenUncounted) {
            let unproven = self.usages.unproven();
            counts.sessions += unproven.sessions;
            counts.leases += unproven.leases;
        }
        counts
    }

    /// The principal whose limits bind a session, if any do.
    fn limited(&self, owner: Option<&Principal>) -> Option<Principal> {
        let binds = self.access.mode() == Mode::Enforced;
        let unproven = self.is_at(LEVEL_RESTORE).then(Principal::anonymous);
        owner.cloned().or(unproven).filter(|_| binds)
    }

    /// Whether a principal may have one more lease or wait, of this name. `ending` says that one of its
    /// leases ends before.
    pub(crate) fn check_principal_leases(
        &self,
        owner: Option<&Principal>,
        name: &LeaseName,
        ending: bool,
    ) -> Result<(), Rejection> {
        let Some(owner) = self.limited(owner) else {
            return Ok(());
        };
        let max = self.access.limits().leases;
        let counts = self.counts_of(&owner);
        let counted = counts.leases + counts.blocked;
        if counted < max {
            return Ok(());
        }
        let own = self.is_kept_for(name, &owner);
        let blocked = own.is_some_and(|lease| lease.blocked.is_some());
        let going = u64::from(blocked) + u64::from(ending);
        match counted >= max.saturating_add(going) {
            true => Err(Rejection::Limit(Limit::PrincipalLeases(max))),
            false => Ok(()),
        }
    }

    /// Makes room for one more lease or wait of a principal that has as many as it may have. Where its
    /// limit was lowered and has left more, two names go for each that comes. Floors that are forgotten
    /// so stay covered by the greatest of them.
    pub(crate) fn make_room_of_principal(&mut self, user: SessionId, name: &LeaseName) {
        let Some(owner) = self.limited(self.owner(user)) else {
            return;
        };
        let max = self.access.limits().leases;
        for _ in 0..FORGOTTEN_PER_NAME_MAX {
            let counts = self.counts_of(&owner);
            let counted = counts.leases + counts.blocked + counts.idle;
            let own = u64::from(self.is_kept_for(name, &owner).is_some());
            if counted < max.saturating_add(own) {
                return;
            }
            let Some(idle) = self.usages.longest_idle(&owner, name).cloned() else {
                return;
            };
            self.forget(&idle);
        }
    }

    /// A lease that counts for a principal as a name, and becomes its lease, or the wait of the first in
    /// the queue, when it is acquired.
    fn is_kept_for(&self, name: &LeaseName, owner: &Principal) -> Option<&Lease> {
        let kept = self.state.kept.get(name)?;
        let lease = self.leases.get(name)?;
        (kept.of == *owner && kept.counts() && lease.queue.is_empty()).then_some(lease)
    }
}

/// What has no principal is that of `anonymous`.
fn named(owner: Option<&Principal>) -> &str {
    owner.map_or(Principal::ANONYMOUS, Principal::as_str)
}
