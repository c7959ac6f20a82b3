//! Whether a caller may do what it asks for, as far as a node says it.
//!
//! Reads are judged on the state that they show, and only there. Of commands a node
//! refuses early what its own state, which may lag, shows to be refused whatever the log holds:
//! the entry decides. A session's numbered requests are never refused early, since the memory of
//! requests comes before rights.
//!
//! An early refusal speaks of one try: a right that was granted a moment ago may not be applied here
//! yet. A node whose state may be from long ago, since it has not caught up after its start, refuses
//! nothing by it and says so. One that has caught up no longer asks the leader: a refusal that costs a
//! round trip would be a way to keep it busy.

use std::sync::LazyLock;
use std::time::Duration;

use ringfence_core::{
    Access, Ask, Caller, Command, LEVEL_ACCESS, LeaseName, Mode, Pod, Principal, Rejection, Scope,
    Secret, SessionId, StateMachine, Verb,
};
use ringfence_planted::{Bug, planted};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;

use crate::Context;
use crate::caller::{Identified, Who};
use crate::clients::Account;
use crate::limits::{ACCESS_LOOK_INTERVAL, CAUGHT_UP_AFTER};
use crate::places::Place;
use crate::spans;

/// What rules name to let a principal read the figures of nodes, their metrics. No lease needs to have
/// this name: it stands in a rule as that of a lease would, so that the right to it alone can be given.
pub const FIGURES: &str = "ringfence/metrics";

static FIGURES_NAME: LazyLock<LeaseName> =
    LazyLock::new(|| LeaseName::parse(FIGURES).expect("a name that is allowed"));

/// What a judgement came to: refused; or allowed, and what would refuse it if rights were binding.
pub(crate) type Judged = Result<Option<Rejection>, Rejection>;

/// Judges what this caller asks under these rights: a ban and its token first.
pub(crate) fn judged(
    access: &Access,
    caller: Option<&Caller>,
    judge: impl FnOnce(&Access) -> Result<(), Rejection>,
) -> Judged {
    let judge = || access.admit(caller).and_then(|()| judge(access));
    match access.mode() {
        Mode::Off => Ok(None),
        Mode::Permissive => Ok(judge().err()),
        Mode::Enforced => judge().map(|()| None),
    }
}

/// What a node can say early of a command.
fn early(machine: &StateMachine, caller: Option<&Caller>, command: &Command) -> Judged {
    let access = machine.access();
    let binds = access.mode() == Mode::Enforced;
    let principal = caller.map(|caller| &caller.principal);
    judged(access, caller, |access| match command.bare() {
        Command::Configure(_) => access.judge(principal, Verb::Configure, Scope::Cluster),
        Command::ChangeAccess(_) => access.judge(principal, Verb::Admin, Scope::Cluster),
        Command::Revoke(revoke) => access.judge(principal, Verb::Revoke, Scope::Name(&revoke.name)),
        Command::Evict(evict) => {
            let held = machine.session(evict.session).map(|view| view.leases);
            let held = held.unwrap_or_default();
            judge_evict(access, principal, held.iter().map(|(name, _)| name))
        }
        // An early answer would contradict one that is remembered; where nothing is refused, it
        // tells operators which rules they lack.
        // A repeat is answered as before; one that is new, and that no rule allows, costs no entry.
        Command::Open(open) if binds && !machine.knows_open(&open.id) => {
            let first = open.acquire.as_ref().map(|acquire| &acquire.name);
            access.judge_open(principal, first)
        }
        Command::OpenForPod(open) if binds && !machine.knows_open(&open.id) => {
            access.judge(principal, Verb::Acquire, Scope::Any)
        }
        // Keep-alives and releases need no right; who could ask for neither costs no entry.
        Command::WriteObject(write) if binds => {
            let name = &write.name;
            let term = machine.object_term(name);
            let holds = term.is_some_and(|term| term.candidate.principal.as_ref() == principal);
            match holds
                || access
                    .judge(principal, Verb::Revoke, Scope::Name(name))
                    .is_ok()
            {
                true => Ok(()),
                false => access.judge(principal, Verb::Acquire, Scope::Name(name)),
            }
        }
        asked if !binds || planted(Bug::EarlyLookIsFinal) => match wanted(asked) {
            Some(scope) => access.judge(principal, Verb::Acquire, scope),
            None => Ok(()),
        },
        _ => Ok(()),
    })
}

/// What a session holds is hidden from who may not revoke it, and so are its names.
fn judge_evict<'a>(
    access: &Access,
    principal: Option<&Principal>,
    mut held: impl Iterator<Item = &'a LeaseName>,
) -> Result<(), Rejection> {
    access.judge(principal, Verb::Revoke, Scope::Any)?;
    let may = |name| {
        access
            .judge(principal, Verb::Revoke, Scope::Name(name))
            .is_ok()
    };
    match held.all(may) {
        true => Ok(()),
        false => access.judge(principal, Verb::Revoke, Scope::Prefix("")),
    }
}

/// What a command needs the right to acquire, for its caller to have it done.
fn wanted(command: &Command) -> Option<Scope<'_>> {
    let acquire = match command {
        Command::Open(open) => open.acquire.as_ref(),
        Command::OpenForPod(_) => None,
        Command::Request(request) => match &request.ask {
            Ask::Acquire(acquire) => Some(acquire),
            _ => return None,
        },
        _ => return None,
    };
    Some(acquire.map_or(Scope::Any, |acquire| Scope::Name(&acquire.name)))
}

/// The session that a command acts for, with the secret that the caller has shown.
fn acts_for(command: &Command) -> Option<(SessionId, &Secret)> {
    match command.bare() {
        Command::Request(request) => Some((request.session, &request.secret)),
        Command::Close { session, secret } => Some((*session, secret)),
        _ => None,
    }
}

/// Whether a command acts for a session that this state does not know as the caller's.
fn is_unknown(machine: &StateMachine, caller: Option<&Principal>, command: &Command) -> bool {
    let caller = caller.map_or(Principal::ANONYMOUS, Principal::as_str);
    let binds = machine.access().mode() == Mode::Enforced;
    let of_another = |session| {
        binds
            && machine
                .owner(session)
                .is_some_and(|of| of.as_str() != caller)
    };
    acts_for(command).is_some_and(|(session, secret)| {
        machine.authenticate(session, secret).is_err() || of_another(session)
    })
}

/// A session is bound to a Pod by that Pod's own credential only.
fn other_pod(who: &Who, pod: &Pod) -> Refusal {
    let principal = who
        .principal()
        .map_or(Principal::ANONYMOUS, Principal::as_str);
    let (namespace, name) = (pod.namespace(), pod.name());
    let message = format!(
        "a session is bound to Pod {namespace}/{name} by the token of that Pod alone, and \
         {principal} showed none of it; mount a projected service account token in the Pod, or open \
         the session with a TTL"
    );
    Refusal::new(Reason::PermissionDenied, message).with("principal", principal)
}

/// The credential that a stream or watch began with is valid no more.
pub(crate) fn expired() -> Refusal {
    let why = "the credential has expired";
    Refusal::new(
        Reason::Unauthenticated,
        format!("{why}; begin again with a new one"),
    )
    .with("why", why)
}

impl Context {
    /// The caller as entries of this node name it.
    pub(crate) fn caller(&self, who: &Who) -> Option<Caller> {
        who.caller(self.own_id())
    }

    /// The same once every member knows callers, whatever the mode: this node may lag behind a
    /// change of it.
    ///
    /// # Errors
    /// [`Refusal`] if this node does not know yet whether they do. Nothing was done.
    pub(crate) fn proven_caller(&self, who: &Who) -> Result<Option<Caller>, Refusal> {
        match self.members_know(who)? {
            true => Ok(self.caller(who)),
            false => Ok(None),
        }
    }

    /// Whether every member knows callers, if this one is proven. A state from long ago, or none at
    /// all, says nothing of that, and what a principal asks must not be taken for a stranger's.
    fn members_know(&self, who: &Who) -> Result<bool, Refusal> {
        let know = || self.node.read(|machine| machine.level()) >= LEVEL_ACCESS;
        if know() || who.principal().is_none() {
            return Ok(true);
        }
        if !self.node.has_caught_up() {
            let why = "this node has not caught up yet, so it may not name a caller to the others";
            return Err(Refusal::unavailable(why, None, CAUGHT_UP_AFTER));
        }
        // It may have caught up since.
        Ok(know())
    }

    /// Refuses if the judgement does, unless the state that it was made by may be from long ago; counts
    /// what would be refused.
    pub(crate) fn heed(&self, judged: Judged) -> Result<(), Refusal> {
        match judged {
            Ok(None) => Ok(()),
            Ok(Some(would)) => {
                self.metrics.denied(&Refusal::from_rejection(&would), false);
                Ok(())
            }
            Err(_) if !self.node.has_caught_up() => {
                let why = "this node has not caught up yet, so the rights that it knows may be old";
                Err(Refusal::unavailable(why, None, CAUGHT_UP_AFTER))
            }
            Err(rejection) => Err(Refusal::from_rejection(&rejection)),
        }
    }

    /// Judges by this node's own state, which may lag.
    pub(crate) fn look_early(
        &self,
        who: &Who,
        judge: impl FnOnce(&Access) -> Result<(), Rejection>,
    ) -> Result<(), Refusal> {
        let caller = self.caller(who);
        self.heed(judged(&self.node.access(), caller.as_ref(), judge))
    }

    /// Refuses a caller that is banned, or whose cluster token is revoked.
    pub(crate) fn admit(&self, who: &Who) -> Result<(), Refusal> {
        self.look_early(who, |_| Ok(()))
    }

    /// A place for one more watch of this caller.
    pub(crate) fn watch_place(&self, who: &Who) -> Result<Place, Refusal> {
        let bind = self.node.access_mode() == Mode::Enforced;
        self.watchers.take(who.principal(), bind)
    }

    /// A place for one more list of this caller that takes several steps.
    pub(crate) fn list_place(&self, who: &Who) -> Result<Place, Refusal> {
        let bind = self.node.access_mode() == Mode::Enforced;
        self.lists.take(who.principal(), bind)
    }

    /// Refuses a caller that may not do this.
    pub(crate) fn demand(&self, who: &Who, verb: Verb) -> Result<(), Refusal> {
        self.look_early(who, |access| {
            access.judge(who.principal(), verb, Scope::Cluster)
        })
    }

    /// Judges who asks for the figures of this node: a caller that may read [`FIGURES`] may. What is
    /// refused is counted, and in the mode `permissive` what would be.
    ///
    /// # Errors
    /// [`Reason::PermissionDenied`] names the rule that would allow it; [`Reason::Unauthenticated`] is
    /// for a cluster token that was revoked.
    pub fn admit_to_figures(&self, caller: Option<Identified>) -> Result<(), Refusal> {
        let who = Who::new(caller);
        let judged = self.look_early(&who, |access| {
            access.judge_read(who.principal(), Scope::Name(&FIGURES_NAME))
        });
        judged.inspect_err(|refusal| self.metrics.denied(refusal, true))
    }

    /// The command as it is logged, with who asks for it, unless this node knows already that it
    /// would be refused, or it acts for one session too many that this node does not know.
    pub(crate) fn asked(
        &self,
        who: &Who,
        account: &Account,
        command: Command,
    ) -> Result<Command, Refusal> {
        spans::note_command(&command);
        let caller = self.caller(who);
        let know_callers = self.members_know(who)?;
        let (mode, unknown, judged) = self.node.read(|machine| {
            let judged = early(machine, caller.as_ref(), &command);
            let unknown = is_unknown(machine, who.principal(), &command);
            (machine.access().mode(), unknown, judged)
        });
        if unknown {
            self.take_unknown_request(who, account)?;
        }
        // Once every member knows callers they are named in the mode `off` too: this node may lag
        // behind a change of the mode, and an entry without its caller would be a stranger's.
        if mode == Mode::Off && !matches!(command, Command::ChangeAccess(_)) {
            return Ok(match know_callers {
                true => who.asks(self.own_id(), command),
                false => command,
            });
        }
        self.heed(judged)?;
        if let Command::OpenForPod(open) = &command
            && !who.is_pod(&open.pod)
        {
            let refusal = other_pod(who, &open.pod);
            match mode {
                Mode::Enforced => return Err(refusal),
                Mode::Permissive | Mode::Off => self.metrics.denied(&refusal, false),
            }
        }
        Ok(who.asks(self.own_id(), command))
    }

    /// Resolves when a stream of this caller has to end: its credential has expired or is revoked,
    /// or it is banned.
    pub(crate) async fn barred(&self, who: &Who) -> Refusal {
        let caller = self.caller(who);
        loop {
            let access = self.node.access();
            if let Err(rejection) = judged(&access, caller.as_ref(), |_| Ok(())) {
                return Refusal::from_rejection(&rejection);
            }
            if access.mode() == Mode::Enforced && who.has_expired() {
                return expired();
            }
            let left = who.expires_in().filter(|left| *left > Duration::ZERO);
            let pause = left.map_or(ACCESS_LOOK_INTERVAL, |left| left.min(ACCESS_LOOK_INTERVAL));
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, proven};

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_in_a_stolen_session_beyond_the_rate_are_refused_before_the_log() {
        let alone = alone().await;
        let who = |principal| Who::new(Some(proven(principal)));
        let (owner, thief) = (who("cert:cn:owner"), who("cert:cn:thief"));
        alone.enforce().await;
        alone.allow("cert:cn:owner", Verb::Acquire, "*").await;
        let (session, secret) = alone.open_as(&owner, 1).await;
        let account = alone.context.new_account();
        let close = Command::Close { session, secret };
        let ask = |who: &Who| alone.context.asked(who, &account, close.clone());
        // Each costs 50 of 20,000.
        let refused = (0..1_000).filter_map(|_| ask(&thief).err());
        let refused: Vec<Refusal> = refused.collect();
        assert!(refused.len() > 300, "{}", refused.len());
        let limited = |refusal: &Refusal| refusal.reason == Reason::Limit;
        assert!(refused.iter().all(limited));
        ask(&owner).expect("its own session");
    }
}
