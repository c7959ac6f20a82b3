//! Takes what nodes and clients tell, in the order in which it happens, and shows it to the promises.

mod heard;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use ringfence_check::history::{self, BeliefEnd};
use ringfence_check::log::Logged;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cases::Cases;
use super::counts::Counts;
use super::{Act, At, Belief, Line, Newest, Observation, Violation, Visit};
use crate::lock::lock;
use crate::properties::{Bounds, Suite};

/// Of how many entries the state behind one is compared, on all nodes and with installed snapshots: a
/// state that differs goes on to differ, and to look at all of it after each entry was a tenth of what
/// a run costs.
const COMPARED: u64 = 8;

/// See the module. Clones are the same recorder.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// The first promise that was broken.
    broken: watch::Sender<Option<Violation>>,
}

struct State {
    begun: Option<Instant>,
    suite: Suite,
    newest: Newest,
    /// The entries that some node has applied.
    log: BTreeSet<u64>,
    steps: Vec<Logged>,
    /// The entries of the log without a command, and their terms.
    skipped: BTreeMap<u64, u64>,
    rollback: Option<Rollback>,
    kept: Kept,
    history: Vec<history::Record>,
    believing: BTreeSet<Belief>,
    tries: u64,
    counts: Counts,
    cases: Cases,
    hash: u64,
}

/// The first time that all disks were set back.
#[derive(Clone, Copy)]
struct Rollback {
    at: At,
    /// How many records stand before it.
    records: usize,
}

/// What records need to know of earlier observations.
#[derive(Default)]
struct Kept {
    /// When keep-alives were sent.
    sent: BTreeMap<u64, u64>,
    /// The TTLs of sessions, in milliseconds.
    ttls: BTreeMap<u64, u64>,
    commits: u64,
    /// The first try to close each session, and that of each further one.
    closes: BTreeMap<u64, u64>,
    again: BTreeMap<u64, u64>,
    closed: BTreeSet<u64>,
}

impl Recorder {
    /// A recorder that knows what a run's plan relaxes.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let state = State {
            begun: None,
            suite: Suite::new(bounds),
            newest: Newest::default(),
            log: BTreeSet::new(),
            steps: Vec::new(),
            skipped: BTreeMap::new(),
            rollback: None,
            kept: Kept::default(),
            history: Vec::new(),
            believing: BTreeSet::new(),
            tries: 0,
            counts: Counts::default(),
            cases: Cases::default(),
            hash: 0xCBF2_9CE4_8422_2325,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                broken: watch::Sender::new(None),
            }),
        }
    }

    /// Something happened now.
    pub fn see(&self, seen: Observation) {
        let mut state = lock(&self.inner.state);
        let at = state.now();
        let broken = state.see(at, seen);
        drop(state);
        if let Err(violation) = broken {
            self.inner.broken.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(violation);
                is_first
            });
        }
    }

    /// The run is over: what should have happened by now has.
    ///
    /// # Errors
    /// The first promise that was broken in the run, or was not kept by its end.
    pub fn end(&self) -> Result<(), Violation> {
        let mut state = lock(&self.inner.state);
        let at = state.now();
        for belief in std::mem::take(&mut state.believing) {
            let why = BeliefEnd::RecordingEnded;
            let until = at;
            state.see(at, Observation::BeliefEnded { belief, until, why })?;
        }
        if let Some(violation) = self.inner.broken.borrow().clone() {
            return Err(violation);
        }
        state.suite.end(at)
    }

    /// The first promise that was broken, once there is one.
    pub async fn broken(&self) -> Violation {
        let mut broken = self.inner.broken.subscribe();
        loop {
            if let Some(violation) = broken.borrow_and_update().clone() {
                return violation;
            }
            if broken.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// How many have it; the caller is alone behind a run.
    #[must_use]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.inner)
    }

    /// A number for one more try.
    #[must_use]
    pub fn next_try(&self) -> u64 {
        let mut state = lock(&self.inner.state);
        state.tries += 1;
        state.tries
    }

    /// The time since the run began.
    #[must_use]
    pub fn now(&self) -> At {
        lock(&self.inner.state).now()
    }

    /// The same in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        nanos(self.now())
    }

    /// A client believes in a grant.
    pub fn believe(&self, belief: &Belief) {
        lock(&self.inner.state).believing.insert(belief.clone());
        self.see(Observation::BeliefBegan(belief.clone()));
    }

    /// A client believes in a grant no more, since `until`. The first report counts.
    pub fn doubt(&self, belief: &Belief, until: At, why: BeliefEnd) {
        if lock(&self.inner.state).believing.remove(belief) {
            let belief = belief.clone();
            self.see(Observation::BeliefEnded { belief, until, why });
        }
    }

    /// A client's process is gone, and has done nothing since `since` by what it believed.
    pub fn client_gone(&self, client: u32, since: At) {
        let believing = {
            let state = lock(&self.inner.state);
            let of_client = |belief: &&Belief| belief.client == client;
            let own = state.believing.iter().filter(of_client);
            own.cloned().collect::<Vec<_>>()
        };
        for belief in believing {
            self.doubt(&belief, since, BeliefEnd::Killed);
        }
        self.see(Observation::ClientGone { client });
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        lock(&self.inner.state).counts.clone()
    }

    /// The newest observations, a line each.
    #[must_use]
    pub fn newest(&self) -> String {
        lock(&self.inner.state).newest.to_string()
    }

    /// A number over everything that was seen.
    #[must_use]
    pub fn hash(&self) -> u64 {
        lock(&self.inner.state).hash
    }

    /// When all disks were set back for the first time, if they were. What was acknowledged before is
    /// gone then, so that the checkers can be shown no more than what was seen until then.
    #[must_use]
    pub fn rolled_back(&self) -> Option<At> {
        let rollback = lock(&self.inner.state).rollback;
        rollback.map(|rollback| rollback.at)
    }

    /// What clients saw until all disks were set back, if they were, in the format of the checkers; it
    /// is taken out.
    #[must_use]
    pub fn take_history(&self) -> Vec<history::Record> {
        let mut state = lock(&self.inner.state);
        let mut history = std::mem::take(&mut state.history);
        let Some(rollback) = state.rollback else {
            return history;
        };
        history.truncate(rollback.records);
        // A belief that went on was not over. One that had ended may have been reported later: a
        // process that sleeps learns it when it wakes.
        let over = nanos(rollback.at);
        for record in &mut history {
            if let history::Record::Belief(belief) = record
                && belief.until > over
            {
                belief.until = over;
                belief.why = BeliefEnd::RecordingEnded;
            }
        }
        history
    }

    /// The log as it was applied first, until all disks were set back, if they were; it is taken out.
    #[must_use]
    pub fn take_log(&self) -> Vec<Logged> {
        let mut state = lock(&self.inner.state);
        let applied = std::mem::take(&mut state.steps);
        let skipped = std::mem::take(&mut state.skipped);
        let skipped = skipped.into_iter().map(|(index, term)| Logged {
            index,
            term,
            entry: None,
        });
        let mut log: Vec<Logged> = applied.into_iter().chain(skipped).collect();
        log.sort_by_key(|logged| logged.index);
        log
    }
}

fn nanos(at: At) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's virtual clock, on which everything here stands"
    )]
    fn now(&mut self) -> At {
        self.begun.get_or_insert_with(Instant::now).elapsed()
    }

    fn see(&mut self, at: At, seen: Observation) -> Result<(), Violation> {
        self.counts.take(&seen);
        self.cases.take(&seen, &mut self.counts);
        self.newest.push(at, &seen);
        self.mix(at, &seen);
        let checked = self.suite.see(at, &seen);
        self.keep(at, seen);
        checked
    }

    fn mix(&mut self, at: At, seen: &Observation) {
        struct Fnv<'a>(&'a mut u64);
        impl Write for Fnv<'_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                for byte in text.bytes() {
                    *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
                }
                Ok(())
            }
        }
        // What nodes apply is in the engine's own trace.
        let mut to = Fnv(&mut self.hash);
        let _infallible = match seen {
            Observation::Applied(applied) => {
                write!(to, "{at:?} {} {}", applied.node, applied.entry.index)
            }
            other => write!(to, "{at:?} {}", Line(other)),
        };
    }

    /// Writes down what the checkers want to know.
    fn keep(&mut self, at: At, seen: Observation) {
        use history::Record;
        let t = nanos(at);
        let record = match seen {
            Observation::Applied(applied) if applied.first => {
                // Behind a rollback there is another log.
                if self.rollback.is_none() {
                    self.steps.push(Logged::from(applied.entry.clone()));
                }
                return;
            }
            Observation::RolledBack | Observation::Restored => {
                self.log.clear();
                let records = self.history.len();
                self.rollback.get_or_insert(Rollback { at, records });
                return;
            }
            Observation::Skipped { index, term, .. } => {
                if self.rollback.is_none() {
                    self.skipped.insert(index, term);
                }
                return;
            }
            Observation::Asked(asked) => {
                if let (history::Op::Close, Some(session)) = (&asked.op, asked.session) {
                    let first = *self.kept.closes.entry(session).or_insert(asked.id);
                    if first != asked.id {
                        self.kept.again.insert(asked.id, first);
                        return;
                    }
                    self.kept.again.insert(asked.id, first);
                }
                Record::Invoked(asked)
            }
            Observation::Answered(mut answered) => {
                if let Some(first) = self.kept.again.remove(&answered.id) {
                    // A close has no number: its tries are not kept apart, so one that was
                    // not done says nothing of the others, and the first answer is the answer.
                    let closed = answered.outcome == history::Outcome::Closed;
                    if !closed || !self.kept.closed.insert(first) {
                        return;
                    }
                    answered.id = first;
                }
                if let history::Outcome::Opened {
                    session, ttl_ms, ..
                } = answered.outcome
                {
                    self.kept.ttls.insert(session, ttl_ms);
                }
                Record::Returned(answered)
            }
            Observation::KeepAliveAsked { id, .. } => {
                self.kept.sent.insert(id, t);
                return;
            }
            Observation::KeptAlive {
                id,
                client,
                session,
                what,
            } => match self.kept_alive(id, client, session, what, t) {
                Some(record) => record,
                None => return,
            },
            Observation::Guard(visit) => self.visited(&visit, t),
            Observation::BeliefBegan(belief) => {
                self.began(&belief, t);
                return;
            }
            Observation::BeliefEnded { belief, until, why } => {
                self.ended(&belief, nanos(until), why);
                return;
            }
            Observation::WatchStarted(started) => Record::WatchStarted(started),
            Observation::WatchEvent(event) => Record::WatchEvent(event),
            Observation::WatchProgress(progress) => Record::WatchProgress(progress),
            _ => return,
        };
        self.history.push(record);
    }

    fn kept_alive(
        &self,
        id: u64,
        client: u32,
        session: u64,
        what: super::Kept,
        t: u64,
    ) -> Option<history::Record> {
        match what {
            super::Kept::Alive => Some(history::Record::KeepAlive(history::KeepAlive {
                client,
                session,
                sent: *self.kept.sent.get(&id)?,
                acked: t,
                ttl_ms: *self.kept.ttls.get(&session)?,
            })),
            super::Kept::Ended => Some(history::Record::SessionEnded(history::SessionEnded {
                client,
                session,
                t,
                cause: None,
            })),
            super::Kept::Untold | super::Kept::NotDone | super::Kept::Refused => None,
        }
    }

    fn visited(&mut self, visit: &Visit, t: u64) -> history::Record {
        self.kept.commits += 1;
        history::Record::Guard(history::Guard {
            store: visit.store.clone(),
            client: visit.client,
            lease: visit.lease.clone(),
            token: visit.token,
            act: match visit.act {
                Act::Advance => history::GuardAct::Advance,
                Act::Write { .. } => history::GuardAct::Write,
            },
            begin: t,
            end: t,
            commit: Some(self.kept.commits),
            admission: match visit.admitted {
                Ok(()) => history::Admission::Admitted,
                Err(Some(mark)) => history::Admission::Refused { mark },
                Err(None) => history::Admission::Failed,
            },
            value: None,
            guarded: true,
        })
    }

    fn began(&mut self, belief: &Belief, t: u64) {
        self.history.push(history::Record::Belief(history::Belief {
            client: belief.client,
            session: belief.session,
            lease: belief.lease.clone(),
            token: belief.token,
            from: t,
            until: u64::MAX,
            why: BeliefEnd::RecordingEnded,
        }));
    }

    fn ended(&mut self, belief: &Belief, until: u64, why: BeliefEnd) {
        let open = self
            .history
            .iter_mut()
            .rev()
            .find_map(|record| match record {
                history::Record::Belief(open)
                    if open.until == u64::MAX
                        && (open.client, open.token) == (belief.client, belief.token) =>
                {
                    Some(open)
                }
                _ => None,
            });
        if let Some(open) = open {
            open.until = until.max(open.from);
            open.why = why;
        }
    }
}
