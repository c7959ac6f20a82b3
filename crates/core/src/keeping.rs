//! Names that no session holds or waits for, and the principals that they are kept for.
//!
//! Such a name keeps its floor for the retention of idle names. It counts for the principal of the
//! session that used it last, as a lease or a wait of it did before, so that no principal fills the
//! table with names that it used once. Where a principal has as many as it may have, its own idle
//! names go for the new ones; those under a lock-delay cannot, and count like leases.

use ringfence_planted::{Bug, planted};

use crate::access::change::Mode;
use crate::access::principal::Principal;
use crate::id::SessionId;
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
        if let Some(of) = &known
            && let Some(due) = from
        {
            self.usages.let_go(of, name, due);
        }
        let of = match (to, user) {
            (None, _) => None,
            (Some(_), None) => known.clone(),
            (Some(_), Some(user)) => self.principal_to_keep_for(user),
        };
        if let Some(of) = &of
            && let Some(due) = to
        {
            self.usages.keep(of, name, due);
        }
        match of {
            of if of == known => {}
            Some(of) => drop(self.state.kept.insert(name.clone(), of)),
            None => drop(self.state.kept.remove(name)),
        }
    }

    /// For whom a name is kept that this session used last. Below the level it counts for no principal,
    /// as in older releases.
    fn principal_to_keep_for(&self, user: SessionId) -> Option<Principal> {
        if !self.is_at(LEVEL_RESTORE) || planted(Bug::IdleNamesUncounted) {
            return None;
        }
        match self.sessions.get(&user) {
            Some(session) => session.owner.clone(),
            None => self.ended.get(user)?.owner.clone(),
        }
    }

    /// Whether a principal may have one more lease or wait, of this name. `ending` says that one of its
    /// leases ends before.
    pub(crate) fn check_principal_leases(
        &self,
        owner: Option<&Principal>,
        name: &LeaseName,
        ending: bool,
    ) -> Result<(), Rejection> {
        let Some(owner) = owner.filter(|_| self.access.mode() == Mode::Enforced) else {
            return Ok(());
        };
        let max = self.access.limits().leases;
        let usage = self.usages.of(owner);
        let counted = usage.map_or(0, |usage| usage.leases + usage.blocked);
        if counted < max {
            return Ok(());
        }
        let own = self.is_kept_for(name, owner);
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
        let owner = self.owner(user).cloned();
        let Some(owner) = owner.filter(|_| self.access.mode() == Mode::Enforced) else {
            return;
        };
        let max = self.access.limits().leases;
        for _ in 0..FORGOTTEN_PER_NAME_MAX {
            let usage = self.usages.of(&owner);
            let counted = usage.map_or(0, |usage| usage.leases + usage.blocked + usage.idle());
            if counted < max {
                return;
            }
            // What is kept for it already becomes its lease or its wait.
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

    fn is_kept_for(&self, name: &LeaseName, owner: &Principal) -> Option<&Lease> {
        let of = self.state.kept.get(name)?;
        self.leases.get(name).filter(|_| of == owner)
    }
}
