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
use crate::access::usage::Kept;
use crate::id::{FencingToken, SessionId};
use crate::lease::{Lease, LeaseDue};
use crate::level::LEVEL_RESTORE;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Limit, Rejection};

/// The most idle names that one new name displaces.
pub(crate) const FORGOTTEN_PER_NAME_MAX: u32 = 2;

impl StateMachine {
    /// Counts a lease that has changed: `user` is the session that used it before, and `from` and `to`
    /// are where it stood and stands among the deadlines.
    pub(crate) fn keep_name(
        &mut self,
        name: &LeaseName,
        user: Option<SessionId>,
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
        let owner = self.owner_of_known(user);
        // A revoke notes the loss before the grant ends.
        let session = self.sessions.get(&user).filter(|_| owner.is_some());
        let lost = session.and_then(|session| session.lost().last());
        let counted = lost.is_some_and(|lost| self.is_newest(name, &lost.name, lost.token));
        let counted = counted && !planted(Bug::RevokedCountsTwice);
        let binds = self.access.mode() == Mode::Enforced;
        let of = owner.cloned().or(binds.then(Principal::anonymous))?;
        Some(Kept { of, counted })
    }

    fn owner_of_known(&self, session: SessionId) -> Option<&Principal> {
        match self.sessions.get(&session) {
            Some(session) => session.owner.as_ref(),
            None => self.ended.get(session)?.owner.as_ref(),
        }
    }

    fn is_newest(&self, name: &LeaseName, lost: &LeaseName, token: FencingToken) -> bool {
        let floor = self.leases.get(name).and_then(|lease| lease.floor);
        name == lost && floor == Some(token)
    }

    /// A session begins to wait for a blocked name, or stops. If the block counts for its principal, it
    /// counts once.
    pub(crate) fn count_wait(&mut self, name: &LeaseName, session: SessionId, begins: bool) {
        let blocked = |lease: &Lease| lease.blocked.is_some();
        if self.leases.get(name).is_some_and(blocked) {
            self.count_kept(name, session, begins);
        }
    }

    /// A session has acknowledged the loss of a grant, or has ended.
    pub(crate) fn count_loss_no_more(
        &mut self,
        name: &LeaseName,
        token: FencingToken,
        session: SessionId,
    ) {
        if self.is_newest(name, name, token) {
            self.count_kept(name, session, false);
        }
    }

    fn count_kept(&mut self, name: &LeaseName, session: SessionId, counted: bool) {
        let owner = self.owner_of_known(session);
        let known = self.state.kept.get(name);
        let known = known.filter(|known| owner == Some(&known.of) && known.counted != counted);
        let due = self.leases.get(name).and_then(Lease::due);
        let (Some(known), Some(due)) = (known.cloned(), due) else {
            return;
        };
        self.usages.let_go(&known, name, due);
        let kept = Kept { counted, ..known };
        self.usages.keep(&kept, name, due);
        self.state.kept.insert(name.clone(), kept);
    }

    /// Whether a principal may have one more lease or wait, of this name. `ending` says that one of its
    /// leases ends before.
    pub(crate) fn check_principal_leases(
        &self,
        owner: Option<&Principal>,
        name: &LeaseName,
        ending: bool,
    ) -> Result<(), Rejection> {
        if self.access.mode() != Mode::Enforced {
            return Ok(());
        }
        let max = self.access.limits().leases;
        let counts = self.usages.of(owner);
        let counted = counts.leases + counts.blocked;
        if counted < max {
            return Ok(());
        }
        // Its own block goes, or its own wait for it counts instead.
        let own = self.is_kept_for(name, owner);
        let blocked = own.is_some_and(|(kept, lease)| lease.blocked.is_some() && !kept.counted);
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
        if self.access.mode() != Mode::Enforced {
            return;
        }
        let owner = self.owner(user).cloned();
        let owner = owner.unwrap_or_else(Principal::anonymous);
        let max = self.access.limits().leases;
        for _ in 0..FORGOTTEN_PER_NAME_MAX {
            let counts = self.usages.of(Some(&owner));
            let counted = counts.leases + counts.blocked + counts.idle;
            if counted < max {
                return;
            }
            // What is kept for it already becomes its lease or its wait.
            let own = self.is_kept_for(name, Some(&owner));
            let own = own.is_some_and(|(kept, lease)| lease.blocked.is_none() || !kept.counted);
            if counted < max.saturating_add(u64::from(own)) {
                return;
            }
            let Some(idle) = self.usages.longest_idle(&owner, name).cloned() else {
                return;
            };
            self.forget(&idle);
        }
    }

    fn is_kept_for(&self, name: &LeaseName, owner: Option<&Principal>) -> Option<(&Kept, &Lease)> {
        let kept = self.state.kept.get(name)?;
        let owner = owner.map_or(Principal::ANONYMOUS, Principal::as_str);
        let lease = self.leases.get(name)?;
        (kept.of.as_str() == owner).then_some((kept, lease))
    }
}
