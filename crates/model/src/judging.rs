//! What the caller of an entry may do, by the rights of the cluster.

use ringfence_core::{
    ChangeAccess, Command, Evict, InvalidAccess, LeaseName, Limit, Mode, NamePattern, Outcome,
    Principal, Rejection, Secret, SessionId, Verb,
};

use super::rights::{To, denied, named};
use super::{Lease, Model, Session};

/// Whether a client can ask for it.
fn is_for_clients(command: &Command) -> bool {
    !matches!(
        command,
        Command::Form(_)
            | Command::TermStart { .. }
            | Command::Tick
            | Command::Renew(_)
            | Command::DrawNodeId
            | Command::PodEnded(_)
            | Command::RaiseLevel { .. }
            | Command::Seed(_)
            | Command::Called(_)
    )
}

/// Whether a client asks for it, itself or by way of a node that says who it is.
pub(super) fn comes_from_a_client(command: &Command) -> bool {
    match command {
        Command::Called(called) => is_for_clients(&called.command),
        other => is_for_clients(other),
    }
}

impl Model {
    pub(super) fn principal(&self) -> Option<&Principal> {
        self.caller.as_ref().map(|caller| &caller.principal)
    }

    /// Judges an entry, and carries it out if its caller may ask for it.
    pub(super) fn called(&mut self, command: &Command) -> Outcome {
        let (caller, asked) = match command {
            Command::Called(called) if is_for_clients(&called.command) => {
                (Some(&called.caller), &called.command)
            }
            Command::Called(_) => return Outcome::Rejected(Rejection::NotReady),
            other => (None, other),
        };
        let proven = caller.filter(|caller| caller.principal.as_str() != "anonymous");
        self.caller = proven.cloned();
        if let Err(refused) = self.may_ask(asked) {
            return Outcome::Rejected(refused);
        }
        self.carry_out(asked)
    }

    fn may_ask(&self, asked: &Command) -> Result<(), Rejection> {
        if self.rights.mode != Mode::Enforced || !is_for_clients(asked) {
            return Ok(());
        }
        if let Some(refused) = self.rights.refuses(self.caller.as_ref()) {
            return Err(refused);
        }
        let may = |verb, to: To<'_>| self.rights.judge(self.principal(), verb, to);
        match asked {
            Command::Configure(_) => may(Verb::Configure, To::Cluster),
            Command::ChangeAccess(_) => may(Verb::Admin, To::Cluster),
            Command::Operate { .. } => may(Verb::Operate, To::Cluster),
            Command::Revoke(revoke) => may(Verb::Revoke, To::Lease(&revoke.name)),
            Command::Evict(Evict { session, .. }) => {
                let names = self.names_of(*session);
                let Some(found) = self.session(*session) else {
                    return may(Verb::Revoke, To::SomeLease);
                };
                if names.len() == found.lost.len() {
                    let own = found.owner.is_some() && found.owner.as_ref() == self.principal();
                    let any = may(Verb::Revoke, To::SomeLease);
                    return match own || self.rights.covers_all(self.principal(), Verb::Revoke) {
                        true => any,
                        false => Err(denied(
                            self.principal(),
                            Verb::Revoke,
                            Some(NamePattern::all()),
                        )),
                    };
                }
                let mut named = names.iter();
                match named.all(|name| may(Verb::Revoke, To::Lease(name)).is_ok()) {
                    true => Ok(()),
                    // A name that is not the caller's to revoke is not its to know.
                    false => Err(denied(
                        self.principal(),
                        Verb::Revoke,
                        Some(NamePattern::all()),
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    /// What a session holds, waits for and has lost.
    fn names_of(&self, id: SessionId) -> Vec<LeaseName> {
        let mut held = Vec::new();
        let mut waits = Vec::new();
        for lease in &self.leases {
            if lease
                .grant
                .as_ref()
                .is_some_and(|grant| grant.session == id)
            {
                held.push(lease.name.clone());
            }
            let own = lease.queue.iter().filter(|waiter| waiter.session == id);
            waits.extend(own.map(|waiter| (waiter.request, lease.name.clone())));
        }
        waits.sort();
        held.extend(waits.into_iter().map(|(_, name)| name));
        let lost = self.session(id).map(|session| session.lost.iter());
        held.extend(lost.into_iter().flatten().map(|lost| lost.name.clone()));
        held
    }

    /// Whether the caller acts for this session, whose secret it knows; the first proven one takes
    /// what was opened while nothing was.
    pub(super) fn act_for(&mut self, id: SessionId) -> Result<(), Rejection> {
        let (mode, caller) = (self.rights.mode, self.principal().cloned());
        let Some(session) = self.session_mut(id) else {
            return Ok(());
        };
        if mode == Mode::Off {
            return Ok(());
        }
        if session.owner.is_none() {
            if caller.is_some() {
                session.owner = caller;
                for lost in session.lost.clone() {
                    self.loss_counts_no_more(&lost);
                }
            }
            return Ok(());
        }
        let same = session.owner == Some(named(caller.as_ref()));
        match same || mode == Mode::Permissive {
            true => Ok(()),
            false => Err(Rejection::OtherPrincipal),
        }
    }

    /// Whether a session's owner may have this lease now.
    pub(super) fn may_acquire(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        self.rights.judge(owner, Verb::Acquire, To::Lease(name))
    }

    /// The same for one that waits: it needs a principal that is not banned, and one of its tokens if
    /// tokens prove it. A lack of these is a lack of the right.
    pub(super) fn may_be_granted(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        let of_token = owner.filter(|owner| owner.as_str().starts_with("token:"));
        let barred =
            self.rights.ban(owner) || of_token.is_some_and(|owner| !self.rights.has_token(owner));
        match self.rights.mode == Mode::Enforced && barred {
            true => Err(denied(
                owner,
                Verb::Acquire,
                Some(NamePattern::Exact(name.clone())),
            )),
            false => self.may_acquire(id, name),
        }
    }

    /// What a principal that may not read a lease hears of its release or revoke that is refused.
    pub(super) fn as_shown(&self, of: Option<&Principal>, refused: Rejection) -> Rejection {
        let (name, offered) = match &refused {
            Rejection::NotHolder { name, offered } => (name.clone(), *offered),
            Rejection::StaleToken { name, offered, .. } => (name.clone(), *offered),
            _ => return refused,
        };
        let may = |verb| self.rights.judge(of, verb, To::Lease(&name)).is_ok();
        if may(Verb::Observe) || may(Verb::Acquire) {
            return refused;
        }
        Rejection::StaleToken {
            name,
            offered,
            current: None,
        }
    }

    /// Whether the caller may acquire anything at all, and have one more session. `first` is the
    /// lease that it asks for with it.
    pub(super) fn may_open(&self, first: Option<&LeaseName>) -> Result<(), Rejection> {
        let rights = &self.rights;
        if rights.mode != Mode::Enforced {
            return Ok(());
        }
        if !rights.allow(self.principal(), Verb::Acquire, To::SomeLease) {
            let to = first.map_or(To::SomeLease, To::Lease);
            return rights.judge(self.principal(), Verb::Acquire, to);
        }
        let owner = self.owner_of_new();
        let fair = self.counts_idle_names();
        let own = |of: &Option<Principal>| match fair {
            true => Some(named(of.as_ref())) == owner,
            false => *of == owner,
        };
        let living = self.sessions.iter().filter(|session| own(&session.owner));
        let ended = self.ended.iter().filter(|session| own(&session.owner));
        let max = rights.limits.sessions;
        let full = (living.count() + ended.count()) as u64 >= max;
        match full {
            true => Err(Rejection::Limit(Limit::PrincipalSessions(max))),
            false => Ok(()),
        }
    }

    /// Who a session belongs to that the caller opens.
    pub(super) fn owner_of_new(&self) -> Option<Principal> {
        match self.rights.mode {
            Mode::Off => None,
            Mode::Permissive => self.principal().cloned(),
            Mode::Enforced => Some(named(self.principal())),
        }
    }

    /// Whether the owner of a session may have one more lease or wait, of this name.
    pub(super) fn has_room(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        self.has_room_for(owner, name, 0)
    }

    /// Whether a principal may have one more lease or wait of this name, once so many of its leases are
    /// given back.
    pub(super) fn has_room_for(
        &self,
        owner: Option<&Principal>,
        name: &LeaseName,
        given_back: usize,
    ) -> Result<(), Rejection> {
        let Some(owner) = &self.limited(owner) else {
            return Ok(());
        };
        // Idle names can go, but not what may not be granted yet.
        let others = |lease: &&Lease| self.is_another_name_of(lease, owner, name);
        let stuck = |lease: &&Lease| others(lease) && !lease.is_idle();
        let count = self.leases_of_all(owner) + self.leases.iter().filter(stuck).count();
        let max = self.rights.limits.leases;
        match (count - given_back) as u64 >= max {
            true => Err(Rejection::Limit(Limit::PrincipalLeases(max))),
            false => Ok(()),
        }
    }

    /// Whose limits bind a session of this owner, if any do.
    fn limited(&self, owner: Option<&Principal>) -> Option<Principal> {
        let unproven = self.counts_idle_names().then(Principal::anonymous);
        let owner = owner.cloned().or(unproven);
        owner.filter(|_| self.rights.mode == Mode::Enforced)
    }

    /// Whether a lease counts for this principal although no session holds it: its loss does not count
    /// already, nor does the wait of the first in the queue.
    fn counts_for(&self, lease: &Lease, principal: &Principal) -> bool {
        let owner_of = |id| self.session(id).and_then(|session| session.owner.as_ref());
        let free = match lease.queue.first() {
            None => true,
            Some(first) => {
                lease.blocked_until().is_some() && named(owner_of(first.session)) != *principal
            }
        };
        let kept = lease.grant.is_none() && lease.last_of.as_ref() == Some(principal);
        kept && free && !lease.loss_counts
    }

    /// The same, if it still counts once the principal has acquired `name`.
    fn is_another_name_of(&self, lease: &Lease, owner: &Principal, name: &LeaseName) -> bool {
        let becomes_its_own = lease.name == *name && lease.queue.is_empty();
        self.counts_for(lease, owner) && !becomes_its_own
    }

    /// Leases and waits of all sessions of a principal, and losses that they have not acknowledged.
    fn leases_of_all(&self, owner: &Principal) -> usize {
        let fair = self.counts_idle_names();
        let own = |session: &&Session| match fair {
            true => named(session.owner.as_ref()) == *owner,
            false => session.owner.as_ref() == Some(owner),
        };
        let own = self.sessions.iter().filter(own);
        own.map(|session| self.leases_of(session.id)).sum()
    }

    /// A principal that has as many leases as it may have forgets names that it used, the oldest
    /// first: two, so that they become fewer after the limit was lowered.
    pub(super) fn forget_own_for(&mut self, id: SessionId, name: &LeaseName) {
        let owner = self.session(id).and_then(|session| session.owner.clone());
        let Some(owner) = self.limited(owner.as_ref()) else {
            return;
        };
        for _ in 0..2 {
            let others = |lease: &&Lease| self.is_another_name_of(lease, &owner, name);
            let count = self.leases_of_all(&owner) + self.leases.iter().filter(others).count();
            let idle = self
                .leases
                .iter()
                .filter(others)
                .filter(|lease| lease.is_idle());
            let oldest = idle.min_by_key(|lease| (lease.idle_since, &lease.name));
            let oldest = oldest.and_then(|lease| self.lease_at(&lease.name));
            if let Some(oldest) = oldest
                && count as u64 >= self.rights.limits.leases
            {
                self.forget(oldest);
            }
        }
    }

    pub(super) fn adopt(&mut self, id: SessionId, secret: &Secret) -> Result<(), Rejection> {
        self.authenticate(id, secret)?;
        self.act_for(id)
    }

    pub(super) fn change_access(&mut self, change: &ChangeAccess) -> Result<Outcome, Rejection> {
        if self.level < 4 {
            return Err(Rejection::InvalidAccess(InvalidAccess::LevelTooLow));
        }
        if self.cluster != Some(change.cluster) {
            return Err(Rejection::InvalidAccess(InvalidAccess::OtherCluster));
        }
        let before = &self.rights;
        if before.set_at != change.based_on {
            let set_at = before.set_at;
            return Err(Rejection::StaleAccess { set_at });
        }
        let changed = before.changed(&change.changes, self.index);
        let (after, token) = changed.map_err(Rejection::InvalidAccess)?;
        let author = self.caller.as_ref();
        let could = before.can_be_changed_by(author);
        let can = after.can_be_changed_by(author);
        let matters = match after.mode {
            Mode::Off => false,
            Mode::Permissive => could,
            Mode::Enforced => true,
        };
        if matters && !can {
            return Err(Rejection::WouldLockOut);
        }
        let set_at = after.set_at;
        self.rights = after;
        Ok(Outcome::AccessChanged { set_at, token })
    }

    /// Who did something, for people.
    pub(super) fn operator(&self, says: &str) -> String {
        let who = match (self.principal(), self.rights.mode) {
            (None, Mode::Off) => return says.to_owned(),
            (None, _) => "anonymous",
            (Some(principal), _) => principal.as_str(),
        };
        if says.is_empty() {
            return who.to_owned();
        }
        format!("{who} ({says})")
    }
}
