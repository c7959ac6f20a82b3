//! I38: once rights bind, what a banned principal asks is refused, and no entry renews a session of
//! it, so that its sessions end by their TTLs.

use ringfence_core::{Command, Mode, Outcome, Principal};
use ringfence_model::rights::Rights;

use super::{Invariant, Step};

pub(super) struct NothingForTheBanned;

impl Invariant for NothingForTheBanned {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let rights = Rights::of(&step.before.access);
        if rights.mode != Mode::Enforced {
            return Ok(());
        }
        let is_banned =
            |principal: Option<&Principal>| principal.is_some() && rights.ban(principal);
        if let Command::Called(called) = &step.entry.command
            && is_banned(Some(&called.caller.principal))
            && !matches!(step.outcome, Outcome::Rejected(_))
        {
            let who = &called.caller.principal;
            return Err(format!(
                "{who} is banned, and was answered {:?}",
                step.outcome
            ));
        }
        for before in &step.before.sessions {
            let after = step.after.session(before.id);
            if is_banned(before.owner.as_ref())
                && after.is_some_and(|after| after.seen != before.seen)
            {
                return Err(format!(
                    "session {} of a banned principal is renewed",
                    before.id
                ));
            }
        }
        Ok(())
    }
}
