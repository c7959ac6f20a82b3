//! Who may do what: all rules are looked at, one after the other.

use ringfence_core::{
    ACCESS_CHANGES_MAX, AccessChange, AccessRecord, BANS_MAX, CLUSTER_TOKENS_MAX, Caller,
    ChangeAccess, ClusterToken, Command, Evict, InvalidAccess, InvalidRule, LeaseName, Limit, Mode,
    NamePattern, Outcome, Principal, PrincipalLimits, PrincipalPattern, RULES_MAX, Rejection, Rule,
    Secret, SessionId, Verb,
};

use super::Model;

/// What a right is for.
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// The cluster as a whole.
    Cluster,
    /// This lease.
    Lease(&'a LeaseName),
    /// Any lease, whichever.
    SomeLease,
}

/// The rights of a cluster.
#[derive(Clone, Debug)]
pub struct Rights {
    /// How much they bind.
    pub mode: Mode,
    /// How much one principal may have.
    pub limits: PrincipalLimits,
    /// The entry that changed them last.
    pub set_at: u64,
    rules: Vec<Rule>,
    bans: Vec<Principal>,
    tokens: Vec<(u64, ClusterToken)>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            limits: PrincipalLimits::STANDARD,
            set_at: 0,
            rules: Vec::new(),
            bans: Vec::new(),
            tokens: Vec::new(),
        }
    }
}

impl Rights {
    /// Those that the records of a snapshot tell.
    #[must_use]
    pub fn of(records: &[AccessRecord]) -> Self {
        let mut all = Self::default();
        for record in records {
            match record.clone() {
                AccessRecord::Mode {
                    mode,
                    limits,
                    set_at,
                } => (all.mode, all.limits, all.set_at) = (mode, limits, set_at),
                AccessRecord::Rule(rule) => all.rules.push(rule),
                AccessRecord::Ban(principal) => all.bans.push(principal),
                AccessRecord::Token { id, token } => all.tokens.push((id, token)),
            }
        }
        all
    }

    /// Whether this principal may do something if rights bind; `None` has proven nothing.
    #[must_use]
    pub fn allow(&self, principal: Option<&Principal>, verb: Verb, to: To<'_>) -> bool {
        let who = principal.map_or("anonymous", Principal::as_str);
        let root = who == "local" && verb == Verb::Admin;
        root || self.rules.iter().any(|rule| {
            let named = match (to, &rule.names) {
                (To::Lease(name), Some(names)) => names_cover(names, who, name.as_str()),
                (To::Lease(_), None) => false,
                (To::Cluster | To::SomeLease, _) => true,
            };
            named && rule.verb == verb && principals_cover(&rule.principals, who)
        })
    }

    /// Whether one rule allows this principal something with all names there are.
    fn covers_all(&self, principal: Option<&Principal>, verb: Verb) -> bool {
        let who = principal.map_or("anonymous", Principal::as_str);
        self.rules.iter().any(|rule| {
            let all = rule.names == Some(NamePattern::all());
            all && rule.verb == verb && principals_cover(&rule.principals, who)
        })
    }

    /// Whether this principal is refused everything if rights bind.
    #[must_use]
    pub fn ban(&self, principal: Option<&Principal>) -> bool {
        let who = principal.map_or("anonymous", Principal::as_str);
        self.bans.iter().any(|banned| banned.as_str() == who)
    }

    fn refuses(&self, caller: Option<&Caller>) -> Option<Rejection> {
        if let Some(Caller {
            principal,
            token: Some(id),
            ..
        }) = caller
        {
            let mut tokens = self.tokens.iter();
            if !tokens.any(|(known, token)| known == id && token.principal == *principal) {
                return Some(Rejection::TokenRevoked { id: *id });
            }
        }
        let principal = caller.map(|caller| &caller.principal);
        self.ban(principal).then(|| Rejection::Banned {
            principal: named(principal),
        })
    }

    fn judge(
        &self,
        principal: Option<&Principal>,
        verb: Verb,
        to: To<'_>,
    ) -> Result<(), Rejection> {
        if self.mode != Mode::Enforced || self.allow(principal, verb, to) {
            return Ok(());
        }
        let names = match to {
            To::Cluster => None,
            To::Lease(name) => Some(NamePattern::Exact(name.clone())),
            To::SomeLease => Some(NamePattern::parse("*").expect("all names")),
        };
        let needed = Rule {
            principals: PrincipalPattern::Exact(named(principal)),
            verb,
            names,
        };
        Err(Rejection::PermissionDenied {
            needed: Box::new(needed),
        })
    }

    fn changed(
        &self,
        changes: &[AccessChange],
        index: u64,
    ) -> Result<(Self, Option<u64>), InvalidAccess> {
        let makes = |change: &&AccessChange| matches!(change, AccessChange::AddToken(_));
        let made = changes.iter().filter(makes).count();
        if !(1..=ACCESS_CHANGES_MAX).contains(&changes.len()) || made > 1 {
            return Err(InvalidAccess::Changes);
        }
        let mut new = self.clone();
        new.set_at = index;
        for change in changes {
            new.change(change, index)?;
        }
        if new.rules.len() > RULES_MAX {
            return Err(InvalidAccess::TooManyRules);
        }
        if new.bans.len() > BANS_MAX {
            return Err(InvalidAccess::TooManyBans);
        }
        if new.tokens.len() > CLUSTER_TOKENS_MAX {
            return Err(InvalidAccess::TooManyTokens);
        }
        Ok((new, (made == 1).then_some(index)))
    }

    fn change(&mut self, change: &AccessChange, index: u64) -> Result<(), InvalidAccess> {
        match change {
            AccessChange::AddRule(rule) => {
                check_rule(rule)?;
                if !self.rules.contains(rule) {
                    self.rules.push(rule.clone());
                }
            }
            AccessChange::RemoveRule(rule) => self.rules.retain(|known| known != rule),
            AccessChange::Ban(principal) => {
                if principal.as_str() == "local" {
                    return Err(InvalidAccess::BanLocal);
                }
                if !self.bans.contains(principal) {
                    self.bans.push(principal.clone());
                }
            }
            AccessChange::Unban(principal) => self.bans.retain(|known| known != principal),
            AccessChange::AddToken(token) => {
                if token.principal.as_str().strip_prefix("token:").is_none() {
                    return Err(InvalidAccess::TokenPrincipal);
                }
                self.tokens.push((index, token.clone()));
            }
            AccessChange::RemoveTokens(of) => {
                self.tokens.retain(|(_, known)| known.principal != *of);
            }
            AccessChange::SetMode(mode) => self.mode = *mode,
            AccessChange::SetLimits(limits) => {
                if limits.sessions == 0 || limits.leases == 0 {
                    return Err(InvalidAccess::LimitOfZero);
                }
                self.limits = *limits;
            }
        }
        Ok(())
    }

    /// Whether this author could make another change if rights bound.
    fn can_be_changed_by(&self, author: Option<&Caller>) -> bool {
        let principal = author.map(|author| &author.principal);
        self.refuses(author).is_none() && self.allow(principal, Verb::Admin, To::Cluster)
    }
}

/// The refusal of a principal that would need this rule.
fn denied(principal: Option<&Principal>, verb: Verb, names: NamePattern) -> Rejection {
    let needed = Rule {
        principals: PrincipalPattern::Exact(named(principal)),
        verb,
        names: Some(names),
    };
    Rejection::PermissionDenied {
        needed: Box::new(needed),
    }
}

/// The principal of a refusal.
pub(super) fn named(principal: Option<&Principal>) -> Principal {
    principal.cloned().unwrap_or_else(Principal::anonymous)
}

fn principals_cover(pattern: &PrincipalPattern, who: &str) -> bool {
    match pattern {
        PrincipalPattern::Exact(principal) => principal.as_str() == who,
        PrincipalPattern::Prefix(begin) => who.starts_with(&**begin),
    }
}

fn names_cover(pattern: &NamePattern, who: &str, name: &str) -> bool {
    match pattern {
        NamePattern::Exact(exact) => exact.as_str() == name,
        NamePattern::Prefix(begin) => name.starts_with(&**begin),
        NamePattern::OwnNamespace => {
            let parts: Vec<&str> = who.splitn(3, ':').collect();
            let ["sa", _, account] = parts[..] else {
                return false;
            };
            let namespace = account.split_once('/').map(|(namespace, _)| namespace);
            let namespace = namespace.filter(|namespace| !namespace.is_empty());
            namespace.is_some_and(|of| name.starts_with(&format!("k8s/{of}/")))
        }
    }
}

fn check_rule(rule: &Rule) -> Result<(), InvalidAccess> {
    let takes = matches!(rule.verb, Verb::Acquire | Verb::Observe | Verb::Revoke);
    let principals = rule.principals.to_string();
    // `sa:ALIAS:` and whatever.
    let accounts = principals.starts_with("sa:") && principals.matches(':').count() >= 2;
    let exact_account = match &rule.principals {
        PrincipalPattern::Exact(one) => {
            let account = one.as_str().splitn(3, ':').nth(2);
            account.is_some_and(|account| account.contains('/'))
        }
        PrincipalPattern::Prefix(_) => true,
    };
    let why = match &rule.names {
        None if takes => InvalidRule::NamesMissing,
        Some(_) if !takes => InvalidRule::NamesNotTaken,
        Some(NamePattern::OwnNamespace) if !(accounts && exact_account) => InvalidRule::NoNamespace,
        _ => return Ok(()),
    };
    Err(InvalidAccess::Rule(why))
}

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
            | Command::Called(_)
    )
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
                        false => Err(denied(self.principal(), Verb::Revoke, NamePattern::all())),
                    };
                }
                let mut named = names.iter();
                match named.all(|name| may(Verb::Revoke, To::Lease(name)).is_ok()) {
                    true => Ok(()),
                    // A name that is not the caller's to revoke is not its to know.
                    false => Err(denied(self.principal(), Verb::Revoke, NamePattern::all())),
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
            session.owner = caller;
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
        if self.rights.mode == Mode::Enforced && self.rights.ban(owner) {
            let principal = named(owner);
            return Err(Rejection::Banned { principal });
        }
        self.rights.judge(owner, Verb::Acquire, To::Lease(name))
    }

    /// The same for one that waits, whose principal needs a token if tokens prove it.
    pub(super) fn may_be_granted(&self, id: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        if let Some(owner) = owner.filter(|owner| owner.as_str().starts_with("token:"))
            && self.rights.mode == Mode::Enforced
        {
            let mut tokens = self.rights.tokens.iter();
            if !tokens.any(|(_, token)| token.principal == *owner) {
                return Err(Rejection::TokenRevoked { id: 0 });
            }
        }
        self.may_acquire(id, name)
    }

    /// What a session that may not read a lease hears of a release that is refused.
    pub(super) fn as_shown(&self, id: SessionId, refused: Rejection) -> Rejection {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        let (name, offered) = match &refused {
            Rejection::NotHolder { name, offered } => (name.clone(), *offered),
            Rejection::StaleToken { name, offered, .. } => (name.clone(), *offered),
            _ => return refused,
        };
        let may = |verb| self.rights.judge(owner, verb, To::Lease(&name)).is_ok();
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
        let living = self
            .sessions
            .iter()
            .filter(|session| session.owner == owner);
        let ended = self.ended.iter().filter(|session| session.owner == owner);
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

    /// Whether the owner of a session may have one more lease or wait.
    pub(super) fn has_room(&self, id: SessionId) -> Result<(), Rejection> {
        let owner = self.session(id).and_then(|session| session.owner.as_ref());
        if self.rights.mode != Mode::Enforced || owner.is_none() {
            return Ok(());
        }
        let own = self
            .sessions
            .iter()
            .filter(|session| session.owner.as_ref() == owner);
        let leases: usize = own.map(|session| self.leases_of(session.id)).sum();
        let max = self.rights.limits.leases;
        match leases as u64 >= max {
            true => Err(Rejection::Limit(Limit::PrincipalLeases(max))),
            false => Ok(()),
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
