//! Looks for an order of a lease's steps that the specification allows and the times agree with.
//!
//! The history is walked through in the order of time with all states in which the lease can be.
//! A step that was begun may be taken at any moment until it returns; it is taken only when it has
//! to be, that is when some step returns that is not possible yet. Steps that change nothing are
//! taken as soon as they are true. So the number of states stays small however long the history is,
//! and what may have happened but need not (a session that ran out of time, a release that was not
//! answered) costs nothing until it explains something.

mod words;

use std::collections::HashSet;

use super::partition::{Lease, Timed};
use super::spec::{Holder, State, Step};
use super::{Caps, Told};
use crate::recording::Recording;
use crate::verdict::{Rule, Violation};
use words::Words;

/// How many states are looked at between two looks at the caller's clock.
const STATES_PER_LOOK: u64 = 4_096;

pub(super) struct Found {
    pub(super) states: u64,
    pub(super) end: End,
}

pub(super) enum End {
    Linearizable,
    Stuck(Stuck),
    States,
    Time,
}

/// The step that cannot have happened, and a state in which the lease must have been.
pub(super) struct Stuck {
    step: usize,
    before: State,
    /// The step that made the holder the holder.
    granted_by: Option<usize>,
}

/// A state, and which of the steps under way have been taken in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Config {
    state: State,
    /// Numbers of the taken steps, sorted: equal sets must be equal as values.
    taken: Vec<u32>,
}

impl Config {
    fn take(&mut self, step: u32) {
        if let Err(at) = self.taken.binary_search(&step) {
            self.taken.insert(at, step);
        }
    }

    fn has_taken(&self, step: u32) -> bool {
        self.taken.binary_search(&step).is_ok()
    }
}

pub(super) fn search(lease: &Lease, caps: Caps<'_>) -> Found {
    let moments = moments(&lease.steps);
    let mut search = Search {
        lease,
        caps,
        words: Words::of(lease, &moments),
        under_way: Vec::new(),
        configs: vec![Config::default()],
        states: 0,
    };
    let end = search.walk(&moments);
    let states = search.states;
    Found { states, end }
}

struct Search<'a> {
    lease: &'a Lease,
    caps: Caps<'a>,
    words: Words<'a>,
    /// Steps that have begun and not returned, in the order of their beginnings.
    under_way: Vec<u32>,
    configs: Vec<Config>,
    states: u64,
}

/// Why the search ends before the history does.
enum Halt {
    Stuck(Stuck),
    States,
    Time,
}

impl Search<'_> {
    fn walk(&mut self, moments: &[(u64, bool, u32)]) -> End {
        for (at, &(now, returns, step)) in moments.iter().enumerate() {
            self.words.go_to(at, now);
            let halted = match returns {
                false => {
                    self.begin(step);
                    Ok(())
                }
                true => self.finish(step),
            };
            match halted {
                Ok(()) => {}
                Err(Halt::Stuck(stuck)) => return End::Stuck(stuck),
                Err(Halt::States) => return End::States,
                Err(Halt::Time) => return End::Time,
            }
            for session in self.words.leave() {
                for config in &mut self.configs {
                    let state = &mut config.state;
                    if !self.words.may_be_a_stranger(session, state.max) {
                        state.dead.retain(|&dead| dead != session);
                    }
                }
            }
        }
        End::Linearizable
    }

    fn begin(&mut self, step: u32) {
        self.under_way.push(step);
        let timed = &self.lease.steps[step as usize];
        for config in &mut self.configs {
            if is_true(&config.state, timed) {
                config.take(step);
            }
        }
    }

    /// Keeps the states in which `step` was taken.
    fn finish(&mut self, step: u32) -> Result<(), Halt> {
        self.under_way.retain(|&other| other != step);
        if self.configs.iter().all(|config| config.has_taken(step)) {
            for config in &mut self.configs {
                config.taken.retain(|&taken| taken != step);
            }
            self.states += self.configs.len() as u64;
            return Ok(());
        }
        self.under_way.push(step);
        let before = std::mem::take(&mut self.configs);
        let witness = before.first().map(|config| config.state.clone());
        let survivors = self.explore(before, step)?;
        self.under_way.retain(|&other| other != step);
        if survivors.is_empty() {
            let before = witness.unwrap_or_default();
            let granted_by = before.holder.and_then(|holder| self.granted_by(holder));
            return Err(Halt::Stuck(Stuck {
                step: step as usize,
                before,
                granted_by,
            }));
        }
        self.configs = survivors;
        Ok(())
    }

    /// All states that can be reached from `from` by the time at which `step` returns, and in which
    /// it was taken last.
    fn explore(&mut self, from: Vec<Config>, step: u32) -> Result<Vec<Config>, Halt> {
        let now = self.lease.steps[step as usize].end;
        let mut seen: HashSet<Config> = from.iter().cloned().collect();
        let mut survivors: HashSet<Config> = HashSet::new();
        let mut to_do = from;
        while let Some(mut config) = to_do.pop() {
            self.states += 1;
            if self.states > self.caps.states {
                return Err(Halt::States);
            }
            if self.states.is_multiple_of(STATES_PER_LOOK) && (self.caps.out_of_time)() {
                return Err(Halt::Time);
            }
            if config.has_taken(step) {
                config.taken.retain(|&taken| taken != step);
                survivors.insert(config);
                continue;
            }
            if config
                .state
                .has_passed(self.lease.steps[step as usize].step)
            {
                continue;
            }
            for next in self.next(&config, now) {
                if seen.insert(next.clone()) {
                    to_do.push(next);
                }
            }
        }
        Ok(survivors.into_iter().collect())
    }

    /// The states one change later.
    fn next(&self, config: &Config, now: u64) -> Vec<Config> {
        let mut next = Vec::new();
        for &step in &self.under_way {
            if !config.has_taken(step) {
                self.take(config, step, now, &mut next);
            }
        }
        if let Some(holder) = config.state.holder {
            self.end_holder(config, holder, now, &mut next);
        }
        self.appear(config, now, &mut next);
        for config in &mut next {
            self.settle(config);
        }
        next
    }

    /// Takes a step that changes the state, in each way in which that is possible.
    fn take(&self, config: &Config, step: u32, now: u64, next: &mut Vec<Config>) {
        let timed = &self.lease.steps[step as usize];
        let mut push = |state| {
            let mut taken = Config {
                state,
                taken: config.taken.clone(),
            };
            taken.take(step);
            next.push(taken);
        };
        let state = &config.state;
        if let Step::Dead { session } = timed.step {
            if self.session_may_end(session, now) && !state.is_dead(session) {
                let mut state = state.clone();
                state.kill(session);
                push(state);
            }
            return;
        }
        if timed.by.is_some_and(|by| state.is_dead(by)) {
            return;
        }
        if let Some(state) = state.after(timed.step) {
            push(state);
        }
        // A grant may be the unanswered hand-over of another client.
        if let (Step::Grant { session, token }, Some(holder)) = (timed.step, state.holder)
            && self.handed_over(holder, Some(session), now)
            && token > state.max
        {
            let mut state = state.clone();
            state.hold(Some(session), token);
            push(state);
        }
    }

    /// Ends the present grant by something that may have happened unseen.
    fn end_holder(&self, config: &Config, holder: Holder, now: u64, next: &mut Vec<Config>) {
        // Who explains what is seen only later has not ended before.
        let ghost = self.lease.ghost(holder.token);
        if ghost.is_some_and(|ghost| ghost.held_until > now) {
            return;
        }
        let may_end = self.lease.token_may_end.get(&holder.token);
        if may_end.is_some_and(|&from| from <= now) {
            let mut config = config.clone();
            config.state.holder = None;
            next.push(config);
        }
        let may_be_revoked = self.lease.token_may_be_revoked.get(&holder.token);
        if may_be_revoked.is_some_and(|&from| from <= now) {
            let mut config = config.clone();
            config.state.holder = None;
            // A revoke that is repeated later is answered as this one would have been.
            config.state.revoked = Some(holder.token);
            next.push(config);
        }
        match holder.session {
            Some(session) if self.session_may_end(session, now) => {
                let mut config = config.clone();
                match self.words.must_remember(session, config.state.max) {
                    true => config.state.kill(session),
                    false => config.state.holder = None,
                }
                next.push(config);
            }
            Some(_) => {}
            // Whose it was is not known, so nothing is known of how long it lives.
            None => {
                let mut config = config.clone();
                config.state.holder = None;
                next.push(config);
            }
        }
    }

    /// Makes the next grant whose answer was lost. Others must wait for it: a client will still
    /// have seen its token, and after a greater one it could not be granted any more.
    fn appear(&self, config: &Config, now: u64, next: &mut Vec<Config>) {
        let state = &config.state;
        let ghosts = &self.lease.ghosts;
        let after = ghosts.partition_point(|ghost| ghost.token <= state.max);
        let Some(ghost) = ghosts.get(after) else {
            return;
        };
        let last = self.lease.ghost(state.max);
        if last.is_some_and(|last| last.newest_until.max(last.held_until) > now) {
            return;
        }
        let mut hold = |session: Option<u64>| {
            if session.is_none_or(|session| !state.is_dead(session)) {
                let mut config = config.clone();
                config.state.hold(session, ghost.token);
                next.push(config);
            }
        };
        let unanswered = &self.lease.unanswered;
        let asked = |since: Option<u64>| since.is_some_and(|since| since <= now);
        match (state.holder, ghost.session) {
            (None, Some(session)) if asked(unanswered.since(session)) => hold(Some(session)),
            // A session of which nothing is known can do whatever a session can.
            (None, None) if asked(unanswered.by_anybody) => hold(None),
            (None, None) => self.words.strangers(state).map(Some).for_each(hold),
            (None, Some(_)) => {}
            (Some(holder), Some(session)) => {
                if self.handed_over(holder, Some(session), now) {
                    hold(Some(session));
                }
            }
            (Some(holder), None) => self.hand_overs(holder, now).for_each(hold),
        }
    }

    /// Takes every step under way that is true now.
    fn settle(&self, config: &mut Config) {
        for &step in &self.under_way {
            if is_true(&config.state, &self.lease.steps[step as usize]) {
                config.take(step);
            }
        }
    }

    fn session_may_end(&self, session: u64, now: u64) -> bool {
        let from = self.lease.session_may_end.get(&session);
        from.is_none_or(|&from| from <= now)
    }

    /// Whether the holder may have handed the lease over to this session unanswered.
    fn handed_over(&self, holder: Holder, to: Option<u64>, now: u64) -> bool {
        let mut given = self.hand_overs(holder, now);
        given.any(|given| to.is_none() || given.is_none() || given == to)
    }

    /// To whom the holder may have handed the lease over unanswered.
    fn hand_overs(&self, holder: Holder, now: u64) -> impl Iterator<Item = Option<u64>> {
        let may = self.lease.may_transfer.get(&holder.token);
        let may = may.into_iter().flatten();
        may.filter(move |may| may.from <= now && holder.may_be(may.session))
            .map(|may| may.to)
    }

    fn granted_by(&self, holder: Holder) -> Option<usize> {
        self.lease.steps.iter().position(|timed| match timed.step {
            Step::Grant { token, .. } | Step::Transfer { new: token, .. } => token == holder.token,
            _ => false,
        })
    }
}

/// Whether the step is true in this state and changes nothing.
fn is_true(state: &State, timed: &Timed) -> bool {
    timed.by.is_none_or(|by| !state.is_dead(by)) && state.says(timed.step)
}

/// Beginnings and returns in the order of time; of those at the same time beginnings come first,
/// since only what had returned before another thing began was before it.
fn moments(steps: &[Timed]) -> Vec<(u64, bool, u32)> {
    let mut moments = Vec::with_capacity(steps.len() * 2);
    for (at, timed) in steps.iter().enumerate() {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        moments.push((timed.begin, false, at));
        moments.push((timed.end, true, at));
    }
    moments.sort_unstable();
    moments
}

impl Stuck {
    pub(super) fn violation(&self, recording: &Recording, lease: &Lease) -> Violation {
        let told = Told::of(recording);
        let timed = &lease.steps[self.step];
        let told_step = |timed: &Timed| match timed.operation {
            Some(at) => told.operation(&recording.operations[at]),
            None => format!(
                "a client learned from {} that its session had ended",
                told.time(timed.end)
            ),
        };
        let mut what = format!(
            "{} cannot have happened on lease {}: ",
            told_step(timed),
            lease.name
        );
        let operations = [Some(self.step), self.granted_by];
        let operations = operations.into_iter().flatten();
        let operations = operations.filter_map(|step| lease.steps[step].operation);
        let operations = operations.map(|at| recording.operations[at].id).collect();
        match self.before.holder {
            None => {
                what += &format!(
                    "no session held it, and the greatest token was {}",
                    self.before.max
                );
            }
            Some(Holder { session, token }) => {
                what += &format!("it was held with token {token}");
                if let Some(granted_by) = self.granted_by {
                    what += &format!(", granted by {}", told_step(&lease.steps[granted_by]));
                }
                if let Some(session) = session {
                    what += &still_held(lease, session, timed.end, &told);
                }
            }
        }
        if let Some(by) = timed.by.filter(|&by| self.before.is_dead(by)) {
            what += &format!("; and session {by} had ended");
        }
        Violation {
            rule: Rule::I6,
            t: timed.end,
            lease: Some(lease.name.clone()),
            operations,
            what,
        }
    }
}

fn still_held(lease: &Lease, session: u64, now: u64, told: &Told) -> String {
    match lease.session_may_end.get(&session) {
        Some(&from) if from > now => format!(
            ", and session {session} cannot have ended before {}",
            told.time(from)
        ),
        _ => String::new(),
    }
}
