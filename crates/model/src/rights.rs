//! Who may do what: all rules are looked at, one after the other.

use ringfence_core::{
    ACCESS_CHANGES_MAX, AccessChange, AccessRecord, BANS_MAX, CLUSTER_TOKENS_MAX, Caller,
    ClusterToken, InvalidAccess, InvalidRule, LeaseName, Mode, NamePattern, Principal,
    PrincipalLimits, PrincipalPattern, RULES_MAX, Rejection, Rule, Verb,
};

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
    /// Takes over those of a backup besides, as the entry at `index` says.
    pub fn add(&mut self, others: &Self, index: u64) {
        if others.set_at > 0 {
            (self.mode, self.limits) = (others.mode, others.limits);
        }
        for rule in &others.rules {
            if !self.rules.contains(rule) {
                self.rules.push(rule.clone());
            }
        }
        for ban in &others.bans {
            if !self.bans.contains(ban) {
                self.bans.push(ban.clone());
            }
        }
        self.set_at = index;
    }

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

    /// Whether a cluster token proves this principal.
    #[must_use]
    pub fn has_token(&self, principal: &Principal) -> bool {
        let mut tokens = self.tokens.iter();
        tokens.any(|(_, token)| token.principal == *principal)
    }

    /// Whether one rule allows this principal something with all names there are.
    pub(super) fn covers_all(&self, principal: Option<&Principal>, verb: Verb) -> bool {
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

    pub(super) fn refuses(&self, caller: Option<&Caller>) -> Option<Rejection> {
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

    pub(super) fn judge(
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
            To::SomeLease => Some(NamePattern::all()),
        };
        Err(denied(principal, verb, names))
    }

    pub(super) fn changed(
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
    pub(super) fn can_be_changed_by(&self, author: Option<&Caller>) -> bool {
        let principal = author.map(|author| &author.principal);
        self.refuses(author).is_none() && self.allow(principal, Verb::Admin, To::Cluster)
    }
}

/// The refusal of a principal that would need this rule.
pub(super) fn denied(
    principal: Option<&Principal>,
    verb: Verb,
    names: Option<NamePattern>,
) -> Rejection {
    let needed = Rule {
        principals: PrincipalPattern::Exact(named(principal)),
        verb,
        names,
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
