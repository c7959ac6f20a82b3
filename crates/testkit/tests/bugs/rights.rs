//! Bugs in what rights promise.

use ringfence_core::{
    AccessRecord, Command, EndCause, Event, Millis, Mode, Outcome, Principal, Rejection, SessionId,
    Verb, WaitEnd,
};
use ringfence_testkit::invariants::Step;
use ringfence_testkit::model::rights::{Rights, To};
use ringfence_testkit::view::View;

use super::{after, granted};

/// Whether rights bind after the entry.
fn enforced(view: &View) -> bool {
    let mode = |record: &AccessRecord| matches!(record, AccessRecord::Mode { mode, .. } if *mode == Mode::Enforced);
    view.access.iter().any(mode)
}

fn is_banned(view: &View, principal: &Principal) -> bool {
    let is = |record: &AccessRecord| matches!(record, AccessRecord::Ban(who) if who == principal);
    view.access.iter().any(is)
}

pub(super) fn drop_rules(step: &mut Step) -> bool {
    let enforced = enforced(&step.after);
    if !enforced || granted(step).is_none() {
        return false;
    }
    let rule = |record: &AccessRecord| matches!(record, AccessRecord::Rule(_));
    after(step).access.retain(|record| !rule(record));
    true
}

pub(super) fn renew_the_banned(step: &mut Step) -> bool {
    let before = step.before.clone();
    if !enforced(&before) {
        return false;
    }
    let mut sessions = after(step).sessions.iter_mut();
    let banned = sessions.find(|session| {
        let owner = session.owner.as_ref();
        before.session(session.id).is_some() && owner.is_some_and(|who| is_banned(&before, who))
    });
    banned
        .map(|session| session.seen = session.seen.after(Millis(1)))
        .is_some()
}

pub(super) fn serve_the_banned(step: &mut Step) -> bool {
    let before = step.before.clone();
    let banned = match &step.entry.command {
        Command::Called(called) => is_banned(&before, &called.caller.principal),
        _ => false,
    };
    let refused = matches!(step.outcome, Outcome::Rejected(Rejection::Banned { .. }));
    if !banned || !refused || !enforced(&before) {
        return false;
    }
    step.outcome = Outcome::Done;
    true
}

pub(super) fn refuse_the_entitled(step: &mut Step) -> bool {
    let after = step.after.clone();
    let rights = Rights::of(&after.access);
    let entitled = |event: &&mut Event| match event {
        Event::WaitEnded { name, session, .. } => after.session(*session).is_some_and(|session| {
            let owner = session.owner.as_ref();
            let proven = owner.is_none_or(|owner| !owner.as_str().starts_with("token:"));
            proven && !rights.ban(owner) && rights.allow(owner, Verb::Acquire, To::Lease(name))
        }),
        _ => false,
    };
    let mut events = step.events.iter_mut();
    match events.find(entitled).filter(|_| enforced(&after)) {
        Some(Event::WaitEnded { why, .. }) => {
            *why = WaitEnd::Refused;
            true
        }
        _ => false,
    }
}

pub(super) fn make_the_refused(step: &mut Step) -> bool {
    let denied = matches!(
        step.outcome,
        Outcome::Rejected(Rejection::PermissionDenied { .. } | Rejection::Banned { .. })
    );
    after(step).header.settings.leases_max += 1;
    denied
}

/// The living session that a stranger's refused entry names.
fn refused_to_a_stranger(step: &Step) -> Option<SessionId> {
    let session = match (step.entry.command.bare(), &step.outcome) {
        (Command::Request(request), Outcome::Rejected(Rejection::OtherPrincipal)) => {
            request.session
        }
        _ => return None,
    };
    step.before.session(session)?;
    step.after.session(session).map(|session| session.id)
}

pub(super) fn renew_by_a_stranger(step: &mut Step) -> bool {
    let named = refused_to_a_stranger(step);
    let mut sessions = after(step).sessions.iter_mut();
    let session = sessions.find(|session| Some(session.id) == named);
    session
        .map(|session| session.seen = session.seen.after(Millis(1)))
        .is_some()
}

pub(super) fn serve_a_stranger(step: &mut Step) -> bool {
    let named = refused_to_a_stranger(step).is_some();
    step.outcome = Outcome::Done;
    named
}

pub(super) fn change_hands(step: &mut Step) -> bool {
    let before = step.before.clone();
    let mut sessions = after(step).sessions.iter_mut();
    let owned = sessions.find(|session| {
        let before = before.session(session.id);
        before.is_some_and(|before| before.owner.is_some())
    });
    let other = Principal::parse("cert:cn:somebody").unwrap();
    owned.map(|session| session.owner = Some(other)).is_some()
}

pub(super) fn serve_the_operator(step: &mut Step) -> bool {
    let operates = matches!(
        step.entry.command.bare(),
        Command::Revoke(_) | Command::Configure(_) | Command::ChangeAccess(_)
    );
    let denied = matches!(
        step.outcome,
        Outcome::Rejected(Rejection::PermissionDenied { .. })
    );
    step.outcome = Outcome::Done;
    operates && denied && enforced(&step.before)
}

pub(super) fn end_by_rights(step: &mut Step) -> bool {
    let held = step.before.leases.iter().find_map(|lease| {
        let grant = lease.grant.as_ref()?;
        Some((lease.name.clone(), grant.token, grant.session))
    });
    let changes = matches!(step.entry.command.bare(), Command::ChangeAccess(_));
    let (Some((name, token, session)), true) = (held, changes) else {
        return false;
    };
    let Some(identity) = step.before.session(session).map(|one| one.identity.clone()) else {
        return false;
    };
    step.events.push(Event::Ended {
        name,
        token,
        session,
        identity,
        cause: EndCause::Revoked {
            operator: String::new(),
            reason: String::new(),
        },
        at: step.entry.wall,
    });
    true
}
