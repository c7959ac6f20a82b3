//! What the caller of an entry may do, judged from the state and the entry alone.
//!
//! The order is part of the contract: the caller's credential and a ban; the session, its secret
//! and its principal; the memory of requests; rights. So a request that was granted is answered
//! with its grant for as long as it is remembered, also if the right is gone since.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::access::change::{ChangeAccess, InvalidAccess, Mode};
use crate::access::principal::Principal;
use crate::access::rules::Scope;
use crate::access::usage::less;
use crate::access::verb::Verb;
use crate::answer::Answer;
use crate::command::{Command, Evict};
use crate::event::WaitEnd;
use crate::id::{Secret, SessionId};
use crate::level::LEVEL_ACCESS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Limit, Outcome, Rejection};
use crate::session::Session;
use crate::state::Frozen;

impl Frozen {
    /// As [`Frozen::authenticate`] for this caller, `None` if nothing was proven of it. Where rights bind,
    /// who knows the secret of another principal's session hears as little of its end as of its life.
    ///
    /// # Errors
    /// As [`Frozen::authenticate`], and [`Rejection::OtherPrincipal`] for an ended session of another.
    pub fn authenticate_for(
        &self,
        caller: Option<&Principal>,
        id: SessionId,
        secret: &Secret,
    ) -> Result<(), Rejection> {
        let caller = caller.map_or(Principal::ANONYMOUS, Principal::as_str);
        let binds = self.access.mode() == Mode::Enforced;
        let owner = self.ended.get(id).and_then(|ended| ended.owner.as_ref());
        let of_another = binds && owner.is_some_and(|owner| owner.as_str() != caller);
        match self.authenticate(id, secret) {
            Err(Rejection::SessionExpired { .. }) if of_another => Err(Rejection::OtherPrincipal),
            other => other,
        }
    }
}

impl StateMachine {
    /// Judges what does not depend on the memory of requests.
    pub(crate) fn judge(&self, command: &Command) -> Result<(), Rejection> {
        let asked = command.bare();
        // A member could wrap what only a leader may log: a client's name on it makes it no
        // client's command.
        if matches!(command, Command::Called(_)) && !asked.is_asked() {
            return Err(Rejection::NotReady);
        }
        let access = &self.state.access;
        if access.mode() != Mode::Enforced || !asked.is_asked() {
            return Ok(());
        }
        access.admit(self.caller.as_ref())?;
        let principal = self.caller.as_ref().map(|caller| &caller.principal);
        match asked {
            Command::Configure(_) => access.judge(principal, Verb::Configure, Scope::Cluster),
            Command::ChangeAccess(_) => access.judge(principal, Verb::Admin, Scope::Cluster),
            Command::Operate { .. } => access.judge(principal, Verb::Operate, Scope::Cluster),
            Command::Revoke(revoke) => {
                access.judge(principal, Verb::Revoke, Scope::Name(&revoke.name))
            }
            Command::Evict(evict) => self.judge_evict(evict),
            // Their sessions decide, and whether they are repeats.
            _ => Ok(()),
        }
    }

    /// Who ends a session ends what it holds and waits for.
    fn judge_evict(&self, evict: &Evict) -> Result<(), Rejection> {
        let access = &self.state.access;
        let principal = self.caller.as_ref().map(|caller| &caller.principal);
        let Some(session) = self.state.sessions.get(&evict.session) else {
            return access.judge(principal, Verb::Revoke, Scope::Any);
        };
        if session.holds().is_empty() && session.waits().is_empty() {
            // It may hold any lease next, so no right to some names covers it. What it has lost and not
            // acknowledged is no longer its own.
            let own = session.owner.is_some() && session.owner.as_ref() == principal;
            let scope = if own { Scope::Any } else { Scope::Prefix("") };
            return access.judge(principal, Verb::Revoke, scope);
        }
        let holds = session.holds().iter().map(|(name, _)| name);
        let waits = session.waits().iter().map(|wait| &wait.name);
        let lost = session.lost().iter().map(|lost| &lost.name);
        let mut names = holds.chain(waits).chain(lost);
        if planted(Bug::EvictAcrossPrefixes) {
            names.by_ref().skip(1).for_each(drop);
        }
        let may = |name| {
            access
                .judge(principal, Verb::Revoke, Scope::Name(name))
                .is_ok()
        };
        match names.all(may) {
            true => Ok(()),
            // What the session has is not shown to a caller that may not revoke it.
            false => Err(access.denied(principal, Verb::Revoke, Scope::Prefix(""))),
        }
    }

    /// Changes a session, and counts what its principal has more or less by it. `None` if it is not
    /// there.
    pub(crate) fn change_session<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        let session = self.state.sessions.get_mut(&id)?;
        let before = session.load();
        let result = change(session);
        let after = session.load();
        if before != after {
            self.usages.change(session.owner.as_ref(), |counts| {
                counts.leases = (counts.leases + after as u64).saturating_sub(before as u64);
            });
        }
        Some(result)
    }

    /// Whether the session, whose secret was proven, is the caller's. One that was opened while
    /// nothing was proven becomes the first principal's that is.
    pub(crate) fn check_owner(&mut self, id: SessionId) -> Result<(), Rejection> {
        let mode = self.access.mode();
        let caller = self.caller.as_ref().map(|caller| &caller.principal);
        let Some(session) = self.sessions.get(&id) else {
            return Ok(());
        };
        let Some(owner) = &session.owner else {
            if let Some(owner) = caller.filter(|_| mode != Mode::Off).cloned() {
                self.give(id, owner);
            }
            return Ok(());
        };
        let caller = caller.map_or(Principal::ANONYMOUS, Principal::as_str);
        let binds = mode == Mode::Enforced && !planted(Bug::OwnerNotCompared);
        match owner.as_str() == caller || !binds {
            true => Ok(()),
            false => Err(Rejection::OtherPrincipal),
        }
    }

    /// Makes a session a principal's that had none, with what it has. Names that are kept for
    /// `anonymous` stay that: they go soon.
    fn give(&mut self, id: SessionId, owner: Principal) {
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return;
        };
        session.owner = Some(owner.clone());
        let leases = session.load() as u64;
        let waits: Vec<LeaseName> = session
            .waits()
            .iter()
            .map(|wait| wait.name.clone())
            .collect();
        let lost = session.lost().to_vec();
        self.usages.change(None, |counts| {
            less(&mut counts.sessions, 1);
            less(&mut counts.leases, leases);
        });
        self.usages.change(Some(&owner), |counts| {
            counts.sessions += 1;
            counts.leases += leases;
        });
        for lost in lost {
            self.count_loss_no_more(&lost.name, lost.token);
        }
        for name in waits {
            self.count_wait(&name);
        }
    }

    /// Whether a session's principal may have this lease now.
    pub(crate) fn check_right(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let access = &self.state.access;
        match access.mode() {
            Mode::Enforced => access.judge(self.owner(id), Verb::Acquire, Scope::Name(name)),
            Mode::Off | Mode::Permissive => Ok(()),
        }
    }

    /// The same for a session that waits. It shows no credential, so a ban and the principal's cluster
    /// tokens are judged here. All that it lacks is answered as a right that is missing: the answer is
    /// remembered, while [`Rejection::Banned`] and [`Rejection::TokenRevoked`] speak of one try.
    pub(crate) fn check_waiter(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let (access, owner) = (&self.state.access, self.owner(id));
        let unproven = |owner| !access.has_token(owner) && !planted(Bug::RevokedTokenWaitsOn);
        let principal = owner.map_or(Principal::ANONYMOUS, Principal::as_str);
        let barred = access.admit_principal(principal).is_err() || owner.is_some_and(unproven);
        match access.mode() == Mode::Enforced && barred {
            true => Err(access.denied(owner, Verb::Acquire, Scope::Name(name))),
            false => self.check_right(id, name),
        }
    }

    /// A refused release or revoke as its principal may hear it. A release needs no right, and to
    /// revoke is none to read. So a principal that may not read the lease gets one answer, whether the
    /// lease is held, by which session and with which token, or not at all.
    pub(crate) fn without_hidden(
        &self,
        principal: Option<&Principal>,
        refusal: Rejection,
    ) -> Rejection {
        match refusal {
            Rejection::NotHolder { name, offered }
            | Rejection::StaleToken { name, offered, .. }
                if !self.may_read(principal, &name) =>
            {
                let current = None;
                Rejection::StaleToken {
                    name,
                    offered,
                    current,
                }
            }
            shown => shown,
        }
    }

    /// Whether a principal may read this lease now.
    fn may_read(&self, principal: Option<&Principal>, name: &LeaseName) -> bool {
        let access = &self.state.access;
        access.mode() != Mode::Enforced || access.judge_read(principal, Scope::Name(name)).is_ok()
    }

    /// Who a session belongs to that the caller opens now, unless it has as many as it may. `first`
    /// is the lease that the same entry acquires.
    pub(crate) fn owner_of_new(
        &self,
        first: Option<&LeaseName>,
    ) -> Result<Option<Principal>, Rejection> {
        let caller = self.caller.as_ref().map(|caller| caller.principal.clone());
        match self.access.mode() {
            Mode::Off => Ok(None),
            Mode::Permissive => Ok(caller),
            Mode::Enforced => {
                let access = &self.access;
                access.judge_open(caller.as_ref(), first)?;
                let owner = caller.unwrap_or_else(Principal::anonymous);
                let max = access.limits().sessions;
                match self.counts_of(&owner).sessions >= max {
                    true => Err(Rejection::Limit(Limit::PrincipalSessions(max))),
                    false => Ok(Some(owner)),
                }
            }
        }
    }

    /// Refuses waiters at the head of a queue that may not have the lease any more, as far as the
    /// budget goes. The next one's turn comes.
    pub(crate) fn refuse_heads(&mut self, name: &LeaseName) {
        if self.state.access.mode() != Mode::Enforced || planted(Bug::RightsOfWaitersNotAsked) {
            return;
        }
        while let Some((&place, head)) = self.leases.get(name).and_then(|lease| lease.queue.first())
        {
            let (id, request) = (head.session, head.request);
            let Err(refusal) = self.check_waiter(id, name) else {
                return;
            };
            if !self.budget.serve() {
                return;
            }
            self.change_session(id, |session| {
                session.remove_wait(request);
                session.requests.settle(request, Answer::Refused(refusal));
            });
            self.remove_waiter(name, place, WaitEnd::Refused);
        }
    }

    /// Whether a session is alive and the caller has shown its secret; of its end only its own principal
    /// hears, where rights bind.
    pub(crate) fn authenticate_caller(
        &self,
        id: SessionId,
        secret: &Secret,
    ) -> Result<(), Rejection> {
        let caller = self.caller.as_ref().map(|caller| &caller.principal);
        self.authenticate_for(caller, id, secret)
    }

    /// Makes a session the caller's that was opened while nothing was proven.
    pub(crate) fn adopt(&mut self, id: SessionId, secret: &Secret) -> Result<Outcome, Rejection> {
        self.end_if_due(id);
        self.authenticate_caller(id, secret)?;
        self.check_owner(id)?;
        Ok(Outcome::Done)
    }

    pub(crate) fn change_access(&mut self, change: &ChangeAccess) -> Result<Outcome, Rejection> {
        let access = &self.state.access;
        if !self.is_at(LEVEL_ACCESS) {
            return Err(Rejection::InvalidAccess(InvalidAccess::LevelTooLow));
        }
        if self.cluster() != Some(change.cluster) {
            return Err(Rejection::InvalidAccess(InvalidAccess::OtherCluster));
        }
        let set_at = access.set_at();
        if change.based_on != set_at {
            return Err(Rejection::StaleAccess { set_at });
        }
        let changed = access.changed(&change.changes, self.index());
        let (after, token) = changed.map_err(Rejection::InvalidAccess)?;
        if access.locks_out(self.caller.as_ref(), &after) {
            return Err(Rejection::WouldLockOut);
        }
        let set_at = after.set_at();
        self.changed_nothing = self.state.access.allows_the_same_as(&after);
        self.state.access = after;
        Ok(Outcome::AccessChanged { set_at, token })
    }

    /// Who ended a grant or a session, for people: the principal first, once callers are proven,
    /// since what a caller says of itself is no authority.
    pub(crate) fn operator(&self, says: &str) -> String {
        let principal = match &self.caller {
            None if self.state.access.mode() == Mode::Off => return says.into(),
            None => crate::Principal::ANONYMOUS,
            Some(caller) => caller.principal.as_str(),
        };
        match says {
            "" => principal.into(),
            says => format!("{principal} ({says})"),
        }
    }
}
