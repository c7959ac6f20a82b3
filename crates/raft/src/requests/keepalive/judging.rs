//! Whose sessions a keep-alive may keep alive. A batch mixes requests of many callers, and each is
//! compared with the sessions that it names itself.

use ringfence_core::{Caller, Mode, Principal, Rejection, Secret, SessionId, StateMachine};
use ringfence_planted::{Bug, planted};

/// What a keep-alive is to a session whose secret it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The caller's own session, or one that anybody may use who knows its secret.
    Own,
    /// It was opened while nothing was proven, and becomes this caller's.
    Unowned,
}

/// Judges what one caller asks, by one state.
pub(super) struct Judge<'a> {
    machine: &'a StateMachine,
    /// `None` if nothing was proven.
    principal: Option<&'a Principal>,
    /// Why this caller is refused everything.
    refused: Option<Rejection>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(machine: &'a StateMachine, caller: Option<&'a Caller>) -> Self {
        let caller = caller.filter(|caller| caller.is_proven());
        let access = machine.access();
        let binds = access.mode() == Mode::Enforced && !planted(Bug::BannedKeptAlive);
        let refused = binds.then(|| access.admit(caller).err()).flatten();
        Self {
            machine,
            principal: caller.map(|caller| &caller.principal),
            refused,
        }
    }

    /// The order is that of `apply`: the caller; the session and its secret; its principal.
    pub(super) fn judge(&self, id: SessionId, secret: &Secret) -> Result<Claim, Rejection> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        self.machine.authenticate_for(self.principal, id, secret)?;
        let mode = self.machine.access().mode();
        let asks = self
            .principal
            .map_or(Principal::ANONYMOUS, Principal::as_str);
        match self.machine.owner(id) {
            _ if mode == Mode::Off => Ok(Claim::Own),
            None if self.principal.is_some() => Ok(Claim::Unowned),
            None => Ok(Claim::Own),
            Some(owner) if owner.as_str() == asks => Ok(Claim::Own),
            _ if mode == Mode::Permissive || planted(Bug::StrangersSessionBatched) => {
                Ok(Claim::Own)
            }
            _ => Err(Rejection::OtherPrincipal),
        }
    }
}
