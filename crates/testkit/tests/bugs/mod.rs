//! The bugs: each changes what one entry did, if that entry gives it the chance.

mod rights;

use std::sync::Arc;

use ringfence_core::snapshot::{Answer, Remembered, TokenCounter};
use ringfence_core::{
    Acquired, Ask, Command, EndCause, Event, FencingToken, Granted, Outcome, RequestNumber, Secret,
    SessionEnd, SessionId,
};
use ringfence_testkit::invariants::Step;
use ringfence_testkit::view::View;

use rights::{
    change_hands, drop_rules, end_by_rights, make_the_refused, refuse_the_entitled,
    renew_by_a_stranger, renew_the_banned, serve_a_stranger, serve_the_banned, serve_the_operator,
};

/// A bug, the invariant that has to notice it, and how it is planted; `false` if there is no
/// chance.
pub(crate) type Bug = (&'static str, &'static str, fn(&mut Step) -> bool);

pub(crate) const BUGS: &[Bug] = &[
    ("a token is granted twice", "I2", repeat_token),
    ("the end of a grant is not told", "I3", drop_end),
    ("a grant is not told", "I3", drop_grant),
    ("a grant is forgotten", "I3", forget_grant),
    ("a session ends early", "I7", end_early),
    ("a silent session lives on", "I8", keep_the_silent),
    ("a session lives on for two TTLs", "I9", keep_for_two_ttls),
    ("an ended session is back", "I10", resurrect),
    (
        "a living session is told to have ended",
        "I10",
        tell_living_as_ended,
    ),
    ("anybody may release", "I11", foreign_release),
    ("a release names another token", "I11", stale_release),
    ("two waiters change places", "I12", swap_places),
    ("the second waiter is served first", "I12", overtake),
    ("a newcomer is granted past the queue", "I12", push_in),
    ("nobody wakes the queue", "I13", sleep_on),
    ("a grant is left without its session", "I13", orphan),
    ("the dead wait", "I13", ghost),
    ("the counter falls", "I16", lower_counter),
    ("a floor is forgotten for good", "I16", forget_floor),
    ("answers pile up", "I20", pile_up),
    ("an answer is forgotten", "I21", forget_answer),
    ("the id of an Open is forgotten", "I21", forget_open),
    ("an ended grant is told as held", "I24", tell_ended_as_held),
    ("a grant without a right", "I37", drop_rules),
    ("one who may is refused", "I37", refuse_the_entitled),
    ("the banned live on", "I38", renew_the_banned),
    ("the banned are served", "I38", serve_the_banned),
    ("a refused change is made", "I39", make_the_refused),
    ("a stranger renews a session", "I39", renew_by_a_stranger),
    ("a stranger is served", "I40", serve_a_stranger),
    ("a session changes hands", "I40", change_hands),
    ("a change of rights ends a grant", "I41", end_by_rights),
    (
        "an operator is served without a right",
        "I43",
        serve_the_operator,
    ),
];

/// The state after the entry, to be changed.
fn after(step: &mut Step) -> &mut View {
    Arc::make_mut(&mut step.after)
}

/// The command without who asks for it.
fn bare(command: &mut Command) -> &mut Command {
    match command {
        Command::Called(called) => &mut called.command,
        other => other,
    }
}

fn granted(step: &mut Step) -> Option<&mut Granted> {
    step.events.iter_mut().find_map(|event| match event {
        Event::Granted(granted) => Some(granted),
        _ => None,
    })
}

/// Removes the first event that fits.
fn drop_event(step: &mut Step, fits: impl Fn(&Event) -> bool) -> bool {
    let at = step.events.iter().position(fits);
    at.map(|at| step.events.remove(at)).is_some()
}

fn repeat_token(step: &mut Step) -> bool {
    let last = FencingToken::new(step.before.header.tokens.granted());
    match (granted(step), last) {
        (Some(granted), Some(last)) => {
            granted.token = last;
            true
        }
        _ => false,
    }
}

fn drop_end(step: &mut Step) -> bool {
    drop_event(step, |event| matches!(event, Event::Ended { .. }))
}

fn drop_grant(step: &mut Step) -> bool {
    drop_event(step, |event| matches!(event, Event::Granted(_)))
}

fn forget_grant(step: &mut Step) -> bool {
    let mut leases = after(step).leases.iter_mut();
    leases.any(|lease| lease.grant.take().is_some())
}

fn end_early(step: &mut Step) -> bool {
    let now = step.after.time();
    let mut early = step.after.sessions.iter();
    let Some(session) = early.find(|s| s.seen.after(s.ttl) > now).map(|s| s.id) else {
        return false;
    };
    if step.before.session(session).is_none() {
        return false;
    }
    after(step).sessions.retain(|alive| alive.id != session);
    let cause = SessionEnd::Expired;
    step.events.push(Event::SessionEnded { session, cause });
    true
}

/// Takes the end of a session back, with all that came of it.
fn keep(step: &mut Step, ttls: u32) -> bool {
    let now = step.after.time();
    let in_term = step.before.header.term_start;
    let expired = step.events.iter().find_map(|event| match event {
        Event::SessionEnded { session, cause } if *cause == SessionEnd::Expired => {
            step.before.session(*session).cloned()
        }
        _ => None,
    });
    let Some(session) = expired else {
        return false;
    };
    let end = (0..ttls).fold(session.seen, |end, _| end.after(session.ttl));
    if end > now || (ttls == 1 && session.seen < in_term) {
        return false;
    }
    let id = session.id;
    step.events.retain(|event| match event {
        Event::SessionEnded { session, .. } | Event::Ended { session, .. } => *session != id,
        _ => true,
    });
    after(step).next_deadline = None;
    after(step).sessions.push(session);
    true
}

fn keep_the_silent(step: &mut Step) -> bool {
    keep(step, 1)
}

fn keep_for_two_ttls(step: &mut Step) -> bool {
    keep(step, 2)
}

fn resurrect(step: &mut Step) -> bool {
    let Some(ended) = step.before.ended.first().map(|ended| ended.session) else {
        return false;
    };
    let Some(mut living) = step.after.sessions.first().cloned() else {
        return false;
    };
    living.id = ended;
    after(step).sessions.push(living);
    true
}

fn tell_living_as_ended(step: &mut Step) -> bool {
    let living = step.after.sessions.first().map(|session| session.id);
    let work_left = step.after.has_work_left();
    match (&mut step.outcome, living) {
        (Outcome::Renewed(renewed), Some(living)) if !work_left => {
            renewed.ended.push(living);
            true
        }
        _ => false,
    }
}

fn releases(step: &Step) -> bool {
    let mut events = step.events.iter();
    let released =
        |event: &Event| matches!(event, Event::Ended { cause, .. } if *cause == EndCause::Released);
    events.any(released)
}

fn foreign_release(step: &mut Step) -> bool {
    if !releases(step) {
        return false;
    }
    match bare(&mut step.entry.command) {
        Command::Request(request) if request.number.get() % 2 == 0 => {
            request.secret = Secret::new([254; 16]);
            true
        }
        Command::Request(request) => {
            request.session = SessionId::new(request.session.get() + 1).unwrap();
            true
        }
        _ => false,
    }
}

fn stale_release(step: &mut Step) -> bool {
    if !releases(step) {
        return false;
    }
    match bare(&mut step.entry.command) {
        Command::Request(request) => match &mut request.ask {
            Ask::Release { token, .. } => {
                *token = FencingToken::new(token.get() + 1).unwrap();
                true
            }
            _ => false,
        },
        _ => false,
    }
}

fn swap_places(step: &mut Step) -> bool {
    for before in &step.before.leases {
        let mut leases = Arc::make_mut(&mut step.after).leases.iter_mut();
        let after = leases.find(|lease| lease.name == before.name);
        if let Some(after) = after.filter(|after| after.queue.len() > 1)
            && before.queue.iter().any(|waiter| *waiter == after.queue[1])
        {
            after.queue.swap(0, 1);
            return true;
        }
    }
    false
}

fn overtake(step: &mut Step) -> bool {
    let handed_over = step.events.iter().any(|event| {
        matches!(
            event,
            Event::Ended {
                cause: EndCause::Transferred { .. },
                ..
            }
        )
    });
    let before = step.before.clone();
    let Some(granted) = granted(step).filter(|_| !handed_over) else {
        return false;
    };
    let queue = before
        .lease(&granted.name)
        .map_or(&[][..], |lease| &lease.queue);
    match queue {
        [first, second, ..] if first.session == granted.session => {
            (granted.session, granted.request) = (second.session, second.request);
            (first.session, first.request) != (second.session, second.request)
        }
        _ => false,
    }
}

fn push_in(step: &mut Step) -> bool {
    let before = step.before.clone();
    let Some(granted) = granted(step) else {
        return false;
    };
    let queue = before
        .lease(&granted.name)
        .map_or(&[][..], |lease| &lease.queue);
    granted.request = RequestNumber::new(granted.request.get() + 100).unwrap();
    !queue.is_empty()
}

fn sleep_on(step: &mut Step) -> bool {
    after(step).next_deadline = None;
    let mut leases = step.after.leases.iter();
    leases.any(|lease| !lease.queue.is_empty())
}

fn orphan(step: &mut Step) -> bool {
    let mut leases = step.after.leases.iter();
    let holder = leases
        .find_map(|lease| lease.grant.as_ref())
        .map(|grant| grant.session);
    after(step)
        .sessions
        .retain(|session| Some(session.id) != holder);
    holder.is_some()
}

fn ghost(step: &mut Step) -> bool {
    let mut leases = step.after.leases.iter();
    let waiter = leases
        .find_map(|lease| lease.queue.first())
        .map(|waiter| waiter.session);
    after(step)
        .sessions
        .retain(|session| Some(session.id) != waiter);
    waiter.is_some()
}

fn lower_counter(step: &mut Step) -> bool {
    let formed = step.before.header.cluster.is_some();
    let before = step.before.header.tokens;
    let lowered = TokenCounter::restored(before.reached().saturating_sub(1), before.granted());
    after(step).header.tokens = lowered;
    formed && before.reached() > 0
}

fn forget_floor(step: &mut Step) -> bool {
    let before = step.before.leases.iter();
    let floor = before.filter_map(|lease| lease.floor).max();
    if floor.is_none() || step.after.header.forgotten >= floor {
        return false;
    }
    after(step).leases.retain(|lease| lease.floor != floor);
    step.after.leases.iter().all(|lease| lease.floor < floor)
}

fn pile_up(step: &mut Step) -> bool {
    let Some(session) = after(step).sessions.first_mut() else {
        return false;
    };
    let number = RequestNumber::new(session.lowest.get() + 256).unwrap();
    session.answers.push(Remembered {
        number,
        fingerprint: 0,
        answer: Answer::Cancelled { name: None },
    });
    true
}

fn forget_answer(step: &mut Step) -> bool {
    for before in &step.before.sessions {
        let mut sessions = Arc::make_mut(&mut step.after).sessions.iter_mut();
        let after = sessions.find(|after| after.id == before.id);
        let Some(after) = after.filter(|after| after.lowest == before.lowest) else {
            continue;
        };
        if !before.answers.is_empty() {
            after.answers.remove(0);
            return true;
        }
    }
    false
}

fn forget_open(step: &mut Step) -> bool {
    let ended_now = step
        .events
        .iter()
        .any(|event| matches!(event, Event::SessionEnded { .. }));
    after(step).ended.clear();
    ended_now
}

fn tell_ended_as_held(step: &mut Step) -> bool {
    let Outcome::Acquired(Acquired::Ended { name, token, .. }) = &step.outcome else {
        return false;
    };
    let Some(living) = step.after.sessions.first() else {
        return false;
    };
    step.outcome = Outcome::Acquired(Acquired::Granted(Granted {
        name: name.clone(),
        token: *token,
        session: living.id,
        identity: living.identity.clone(),
        data: ringfence_core::HolderData::default(),
        request: RequestNumber::FIRST,
        index: step.entry.index,
        since: step.entry.wall,
    }));
    true
}
