//! How often rights came into play, by what happened: a run in which none of it did says nothing of
//! them.

use std::sync::Arc;

use ringfence_core::{
    AccessChange, Acquired, Ask, Command, Event, Limit, Mode, Outcome, Rejection, Verb, WaitEnd,
};
use ringfence_testkit::model::rights::{Rights, To};
use ringfence_testkit::view::View;

use super::counts::Counts;
use super::{Applied, Observation};

/// What is to be known of the entry before.
#[derive(Default)]
pub(super) struct Cases {
    before: Option<Arc<View>>,
}

impl Cases {
    /// Takes notice of what an entry did.
    pub(super) fn take(&mut self, seen: &Observation, counts: &mut Counts) {
        let applied = match seen {
            Observation::Applied(applied) if applied.first => applied,
            Observation::RolledBack | Observation::Restored => {
                self.before = None;
                return;
            }
            _ => return,
        };
        let Some(after) = applied.after.clone() else {
            return;
        };
        if let Some(before) = self.before.replace(after.clone()) {
            by_outcome(applied, counts);
            by_events(applied, &after, counts);
            by_command(applied, &before, &after, counts);
        }
    }
}

fn by_outcome(applied: &Applied, counts: &mut Counts) {
    let asked = applied.entry.command.bare();
    let (Outcome::Rejected(rejection) | Outcome::Acquired(Acquired::Refused(rejection))) =
        &applied.outcome
    else {
        return;
    };
    let is_acquire = matches!(asked, Command::Request(request)
        if matches!(request.ask, Ask::Acquire(_)));
    let is_transfer = matches!(asked, Command::Request(request)
        if matches!(request.ask, Ask::Transfer { .. }));
    match (rejection, asked) {
        (Rejection::PermissionDenied { .. }, _) if is_acquire => counts.case("refused by right"),
        (Rejection::PermissionDenied { .. }, _) if is_transfer => {
            counts.case("transfer refused by right");
        }
        (Rejection::PermissionDenied { .. }, Command::Configure(_)) => {
            counts.case("settings refused by right");
        }
        (Rejection::PermissionDenied { .. }, Command::Revoke(_) | Command::Evict(_)) => {
            counts.case("operator refused by right");
        }
        (Rejection::OtherPrincipal, _) => counts.case("stolen session refused"),
        (Rejection::Banned { .. }, _) => counts.case("refused by ban"),
        (Rejection::TokenRevoked { .. }, _) => counts.case("refused by token"),
        (Rejection::Limit(Limit::PrincipalLeases(_) | Limit::PrincipalSessions(_)), _) => {
            counts.case("refused by a principal's limit");
        }
        _ => {}
    }
}

fn by_events(applied: &Applied, after: &View, counts: &mut Counts) {
    let enforced = Rights::of(&after.access).mode == Mode::Enforced;
    let mut refused = Vec::new();
    for event in &applied.events {
        match event {
            Event::Granted(granted) => {
                if enforced {
                    counts.case("granted under enforced");
                }
                if refused.contains(&&granted.name) {
                    counts.case("waiter refused, the next one granted");
                }
            }
            Event::WaitEnded {
                name,
                why: WaitEnd::Refused,
                ..
            } => {
                counts.case("waiter refused");
                refused.push(name);
            }
            _ => {}
        }
    }
}

fn by_command(applied: &Applied, before: &View, after: &View, counts: &mut Counts) {
    let holders = || {
        before
            .leases
            .iter()
            .filter_map(|lease| lease.grant.as_ref())
    };
    match (applied.entry.command.bare(), &applied.outcome) {
        (Command::ChangeAccess(change), Outcome::AccessChanged { .. }) => {
            let (old, new) = (Rights::of(&before.access), Rights::of(&after.access));
            if old.mode != new.mode && holders().next().is_some() {
                counts.case("mode changed over holders");
            }
            let bans = |part: &AccessChange| {
                matches!(part, AccessChange::Ban(who)
                if holders().any(|grant| {
                    let holder = before.session(grant.session);
                    holder.is_some_and(|holder| holder.owner.as_ref() == Some(who))
                }))
            };
            if new.mode == Mode::Enforced && change.changes.iter().any(bans) {
                counts.case("ban over held leases");
            }
            let loses = holders().any(|grant| {
                let lease = before
                    .leases
                    .iter()
                    .find(|lease| lease.grant.as_ref() == Some(grant));
                let owner = before.session(grant.session);
                let owner = owner.and_then(|session| session.owner.as_ref());
                let may = |rights: &Rights| {
                    lease.is_some_and(|lease| {
                        rights.allow(owner, Verb::Acquire, To::Lease(&lease.name))
                    })
                };
                may(&old) && !may(&new)
            });
            if new.mode == Mode::Enforced && loses {
                counts.case("right lost by a holder");
            }
        }
        (Command::Request(request), Outcome::Acquired(Acquired::Granted(granted))) => {
            let fresh = applied
                .events
                .iter()
                .any(|event| matches!(event, Event::Granted(new) if new.token == granted.token));
            let rights = Rights::of(&after.access);
            let owner = after.session(request.session);
            let owner = owner.and_then(|session| session.owner.as_ref());
            let may = rights.allow(owner, Verb::Acquire, To::Lease(&granted.name));
            if !fresh && !may && rights.mode == Mode::Enforced {
                counts.case("grant repeated without the right");
            }
        }
        (Command::Renew(_), Outcome::Renewed(renewed)) => {
            let rights = Rights::of(&after.access);
            let banned = renewed.ended.iter().any(|id| {
                let owner = after
                    .session(*id)
                    .and_then(|session| session.owner.as_ref());
                owner.is_some() && rights.ban(owner)
            });
            if banned {
                counts.case("keep-alive of a banned principal left out");
            }
        }
        _ => {}
    }
    let adopted = after.sessions.iter().any(|session| {
        session.owner.is_some()
            && before
                .session(session.id)
                .is_some_and(|old| old.owner.is_none())
    });
    if adopted {
        counts.case("session adopted");
    }
}
