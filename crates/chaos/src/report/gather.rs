//! Reads the records of a history, one by one, into what the page is about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ringfence_check::history::{
    Admission, Belief, BeliefEnd, Fault, Guard, GuardAct, Invoked, NodeSeen, NodeState, Op,
    Outcome, Record, Returned, WatchEvent, WatchKind,
};

use super::call::{Call, Fate, WRITE, answered, asked};
use super::grants::{Grants, Holder, cause_word};

/// Names in the order in which they were first seen, each with its number.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Names {
    /// The number of `name`, which is given one if it has none.
    pub(super) fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// The number of `name`, if it has one.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// All names by number.
    pub(super) fn all(&self) -> &[String] {
        &self.names
    }
}

/// What the records say, not yet put in order.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) calls: Vec<Call>,
    pub(super) grants: Grants,
    pub(super) beliefs: Vec<Belief>,
    pub(super) faults: Vec<Fault>,
    pub(super) sights: Vec<NodeSeen>,
    pub(super) leases: Names,
    pub(super) nodes: Names,
    pub(super) clients: BTreeSet<u32>,
    /// Guards by number: lease and store.
    pub(super) guards: Vec<(usize, String)>,
    /// When a copy without a guard took writes, by client, lease and token.
    copied: BTreeMap<(u32, usize, u64), Vec<u64>>,
    /// Operations without an answer so far: place of the call, and the operation.
    open: HashMap<u64, (usize, Invoked)>,
    /// The first and the last time that any record names.
    pub(super) span: Option<(u64, u64)>,
    /// Records that are no operations, but were counted as what was looked at.
    pub(super) operations: u64,
}

impl Gather {
    /// Takes one record.
    pub(super) fn record(&mut self, record: &Record) {
        match record {
            Record::Header(header) => {
                for node in &header.nodes {
                    self.nodes.number(node);
                }
            }
            Record::Invoked(invoked) => self.invoked(invoked),
            Record::Returned(returned) => self.returned(returned),
            Record::KeepAlive(seen) => {
                self.saw(seen.client, seen.sent, seen.acked);
                let mut call = Call::begun(seen.client, "keep-alive", seen.sent);
                call.end = Some(seen.acked);
                call.fate = Fate::Done;
                call.text = format!("session {}, TTL {} ms", seen.session, seen.ttl_ms);
                self.calls.push(call);
            }
            Record::Belief(belief) => self.belief(belief),
            Record::Guard(guard) => self.guard(guard),
            Record::WatchEvent(event) => self.watch_event(event),
            Record::Fault(fault) => self.faults.push(fault.clone()),
            Record::Node(seen) => {
                self.nodes.number(&seen.node);
                self.sights.push(seen.clone());
            }
            Record::SessionEnded(_)
            | Record::Queued(_)
            | Record::WatchStarted(_)
            | Record::WatchProgress(_)
            | Record::Note(_) => {}
        }
    }

    fn saw(&mut self, client: u32, begin: u64, end: u64) {
        self.clients.insert(client);
        let (first, last) = self.span.unwrap_or((begin, end));
        self.span = Some((first.min(begin), last.max(end)));
    }

    fn invoked(&mut self, invoked: &Invoked) {
        self.saw(invoked.client, invoked.t, invoked.t);
        self.operations += 1;
        let (kind, lease, token, text) = asked(&invoked.op);
        let mut call = Call::begun(invoked.client, kind, invoked.t);
        call.lease = lease.map(|name| self.leases.number(name));
        call.token = token;
        call.text = text;
        call.number = Some(invoked.id);
        self.open
            .insert(invoked.id, (self.calls.len(), invoked.clone()));
        self.calls.push(call);
    }

    fn returned(&mut self, returned: &Returned) {
        let Some((at, invoked)) = self.open.remove(&returned.id) else {
            return;
        };
        self.saw(invoked.client, invoked.t, returned.t);
        let (fate, token, text) = answered(&returned.outcome);
        let call = &mut self.calls[at];
        // One that is unknown has no answer, whatever was heard instead of it.
        call.end = (fate != Fate::Unknown).then_some(returned.t);
        call.fate = fate;
        call.token = token.unwrap_or(call.token);
        if !text.is_empty() {
            call.text = [std::mem::take(&mut call.text), text]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
        }
        self.learn(&invoked, &returned.outcome, returned.t);
    }

    /// What an answer says of grants.
    fn learn(&mut self, invoked: &Invoked, outcome: &Outcome, t: u64) {
        let of_op = asked(&invoked.op).1.map(|name| self.leases.number(name));
        match (outcome, of_op) {
            (Outcome::Granted { token }, Some(lease)) => {
                let holder = Holder::Client(invoked.client);
                self.grants.made((lease, *token), t, holder);
            }
            (
                Outcome::Opened {
                    session, acquired, ..
                },
                _,
            ) => {
                self.grants.opened(*session, invoked.client);
                if let Some(acquired) = acquired {
                    self.learn(invoked, acquired, t);
                }
            }
            (Outcome::StillGranted { lease, token }, _) => {
                let lease = self.leases.number(lease);
                let holder = Holder::Client(invoked.client);
                self.grants.made((lease, *token), t, holder);
            }
            (Outcome::Ended { token }, Some(lease)) => self.grants.ended((lease, *token), t, ""),
            (Outcome::Released, Some(lease)) => {
                if let Op::Release { token, .. } = &invoked.op {
                    self.grants.ended((lease, *token), t, "released");
                }
            }
            (Outcome::Transferred { to, token }, Some(lease)) => {
                if let Op::Transfer { token: old, .. } = &invoked.op {
                    self.grants.ended((lease, *old), t, "transferred");
                }
                self.grants.made((lease, *token), t, Holder::Session(*to));
            }
            _ => {}
        }
    }

    fn belief(&mut self, belief: &Belief) {
        self.saw(belief.client, belief.from, belief.until);
        let lease = self.leases.number(&belief.lease);
        let holder = Holder::Client(belief.client);
        self.grants.made((lease, belief.token), belief.from, holder);
        self.beliefs.push(belief.clone());
    }

    fn guard(&mut self, guard: &Guard) {
        self.saw(guard.client, guard.begin, guard.end);
        let lease = self.leases.number(&guard.lease);
        if !guard.guarded {
            if guard.act == GuardAct::Write && guard.admission == Admission::Admitted {
                let key = (guard.client, lease, guard.token);
                self.copied.entry(key).or_default().push(guard.begin);
            }
            return;
        }
        self.operations += 1;
        let kind = match guard.act {
            GuardAct::Advance => "advance",
            GuardAct::Read => "read",
            GuardAct::Write => WRITE,
        };
        let mut call = Call::begun(guard.client, kind, guard.begin);
        call.lease = Some(lease);
        call.token = guard.token;
        call.commit = guard.commit;
        call.text = guard.value.clone().unwrap_or_default();
        call.end = Some(guard.end);
        match guard.admission {
            Admission::Admitted => call.fate = Fate::Done,
            Admission::Refused { mark } => {
                call.fate = Fate::Refused;
                call.mark = mark;
            }
            Admission::Failed => {
                call.fate = Fate::Refused;
                call.text = format!("{} (it failed without effect)", call.text);
            }
            Admission::Unknown => call.end = None,
        }
        // A read needs no admission, so it is no visit to the guard.
        if guard.act != GuardAct::Read {
            call.guard = Some(self.guard_number(lease, &guard.store));
        }
        self.calls.push(call);
    }

    fn guard_number(&mut self, lease: usize, store: &str) -> usize {
        let known = |(of, name): &(usize, String)| *of == lease && name == store;
        self.guards.iter().position(known).unwrap_or_else(|| {
            self.guards.push((lease, store.to_owned()));
            self.guards.len() - 1
        })
    }

    fn watch_event(&mut self, event: &WatchEvent) {
        let lease = self.leases.number(&event.lease);
        let key = (lease, event.token);
        match event.kind {
            WatchKind::Granted => {
                let holder = event.session.map_or(Holder::Unknown, Holder::Session);
                self.grants.made(key, event.t, holder);
            }
            WatchKind::Ended(cause) => self.grants.ended(key, event.t, cause_word(cause)),
        }
    }

    /// Says at each stale write whether the copy without a guard took one like it at the same time.
    /// To be called when it is known which are stale.
    pub(super) fn find_copies(&mut self) {
        for call in self.calls.iter_mut().filter(|call| call.stale) {
            let Some(lease) = call.lease else { continue };
            let taken = self.copied.get(&(call.client, lease, call.token));
            let near = |begin: &u64| begin.abs_diff(call.begin) <= COPY_WITHIN_NS;
            call.copy_took = taken.is_some_and(|taken| taken.iter().any(near));
        }
    }
}

/// A write and its copy begin within this many nanoseconds of each other.
const COPY_WITHIN_NS: u64 = 500_000_000;

/// The page's word for the end of a belief.
pub(super) fn belief_word(end: BeliefEnd) -> &'static str {
    match end {
        BeliefEnd::Released => "released",
        BeliefEnd::Transferred => "transferred",
        BeliefEnd::Closed => "closed",
        BeliefEnd::Window => "window",
        BeliefEnd::Told => "told",
        BeliefEnd::Refused => "refused",
        BeliefEnd::Killed => "killed",
        BeliefEnd::RecordingEnded => "",
    }
}

/// The page's word for what a node is.
pub(super) fn role_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Follower => "follower",
        NodeState::Candidate => "candidate",
        NodeState::Leader => "leader",
        NodeState::Learner => "learner",
        NodeState::Paused => "paused",
        NodeState::Down => "down",
    }
}
