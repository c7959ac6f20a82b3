//! The cluster behind the network: the real state machine, with one log, one leader at a time, and
//! cluster time as a leader reads it.
//!
//! There is no replication: what one leader applied the next one has. What a client can see of a
//! change of leader is here: broken streams, refusals during the election, a new term.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::{
    Acquired, ClusterId, ClusterTime, Command, Entry, Event, FencingToken, Form, LEVEL_RESTORE,
    LeaseName, Millis, Mode, Opened, Outcome, RequestNumber, SessionId, Settings, StateMachine,
    WaitEnd, WallTime,
};
use tokio::sync::{Notify, oneshot};

use crate::lock::lock;
use crate::story::Story;

/// 2027-01-01, in milliseconds since 1970: where the wall clock of every world begins.
const WALL_MILLIS: u64 = 1_798_761_600_000;
/// Entries move cluster time at least this often while anything waits for it.
const TICK_MAX: Millis = Millis(500);
/// Deadlines that lie closer together than this share a tick.
const TICK_MIN: Millis = Millis(10);

/// See the module.
pub(crate) struct Cluster {
    state: Mutex<State>,
    pub(crate) story: Story,
    /// Notified of each entry and of each change of leader.
    pub(crate) moved: Notify,
}

struct State {
    machine: StateMachine,
    index: u64,
    /// The node that leads.
    leader: Option<usize>,
    term: u64,
    reading: Reading,
    waits: BTreeMap<(SessionId, RequestNumber), Vec<oneshot::Sender<WaitDone>>>,
    /// Which process opened a session.
    owners: BTreeMap<SessionId, String>,
    /// To which process a token was granted.
    tokens: BTreeMap<FencingToken, String>,
    /// The newest token of each process, by lease.
    newest: BTreeMap<(LeaseName, String), FencingToken>,
}

/// How a wait in a queue has ended.
#[derive(Clone)]
pub(crate) enum WaitDone {
    /// So the request stands.
    Settled(Acquired),
    /// Its session is over.
    SessionGone,
}

/// An entry that was applied.
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    /// Cluster time behind it.
    pub(crate) time: ClusterTime,
}

/// A leader's reading of cluster time: it runs with true time, gets no further ahead of the newest
/// applied entry than the state allows, and makes up for nothing that it loses there.
struct Reading {
    counter: Duration,
    looked: Duration,
}

impl Reading {
    fn start(applied: ClusterTime, now: Duration) -> Self {
        Self {
            counter: Duration::from_millis(applied.0),
            looked: now,
        }
    }

    fn read(&mut self, machine: &StateMachine, now: Duration) -> ClusterTime {
        let end = Duration::from_millis(machine.time().after(machine.lead()).0);
        let room = end.saturating_sub(self.counter);
        self.counter += now.saturating_sub(self.looked).min(room);
        self.looked = now;
        ClusterTime(millis(self.counter))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Cluster {
    /// A formed cluster whose node 0 leads. Its tokens begin at 1, for people.
    pub(crate) fn form(name: [u8; 16], story: Story) -> Arc<Self> {
        let cluster = Arc::new(Self {
            state: Mutex::new(State {
                machine: StateMachine::new(),
                index: 0,
                leader: None,
                term: 0,
                reading: Reading::start(ClusterTime(0), Duration::ZERO),
                waits: BTreeMap::new(),
                owners: BTreeMap::new(),
                tokens: BTreeMap::new(),
                newest: BTreeMap::new(),
            }),
            story,
            moved: Notify::new(),
        });
        cluster.lead(0);
        let form = Form {
            cluster: ClusterId::new(name),
            token_floor: Some(0),
            settings: Settings {
                ttl_min: Millis(100),
                ..Settings::STANDARD
            },
            mode: Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        };
        for command in [
            Command::Form(form),
            Command::RaiseLevel {
                level: LEVEL_RESTORE,
            },
        ] {
            let applied = cluster.apply(command, None);
            let done = applied.map(|applied| applied.outcome);
            assert_eq!(done, Some(Outcome::Done), "the cluster cannot be formed");
        }
        cluster
    }

    /// The node that leads.
    pub(crate) fn leader(&self) -> Option<usize> {
        lock(&self.state).leader
    }

    /// The term of the newest leader.
    pub(crate) fn term(&self) -> u64 {
        lock(&self.state).term
    }

    /// No node leads any more: nothing is applied, and time stands still.
    pub(crate) fn depose(&self) {
        lock(&self.state).leader = None;
        self.moved.notify_waiters();
    }

    /// This node leads in a new term.
    pub(crate) fn lead(&self, node: usize) {
        let now = self.story.time();
        {
            let mut state = lock(&self.state);
            state.leader = Some(node);
            state.term += 1;
            state.reading = Reading::start(state.machine.time(), now);
        }
        self.story.say(format_args!("n{} leads", node + 1));
        let unix_seconds = Some((WALL_MILLIS + millis(now)) / 1_000);
        self.apply(Command::TermStart { unix_seconds }, None);
    }

    /// A look at the state.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&StateMachine) -> T) -> T {
        look(&lock(&self.state).machine)
    }

    /// Applies a command of a process, if a node leads.
    pub(crate) fn apply(&self, command: Command, process: Option<&str>) -> Option<Applied> {
        let now = self.story.time();
        let mut state = lock(&self.state);
        state.leader?;
        let State {
            machine, reading, ..
        } = &mut *state;
        let time = reading.read(machine, now);
        state.index += 1;
        let entry = Entry {
            index: state.index,
            term: state.term,
            time,
            wall: WallTime(WALL_MILLIS + millis(now)),
            command,
        };
        let mut events = Vec::new();
        let outcome = state.machine.apply(&entry, &mut events);
        if let (Outcome::Opened(Opened { session, .. }), Some(process)) = (&outcome, process) {
            state.owners.insert(*session, process.to_owned());
        }
        events.iter().for_each(|event| self.tell(&mut state, event));
        let settled = state.settle(&events);
        let time = state.machine.time();
        drop(state);
        for (waiting, done) in settled {
            // The stream of the waiting client may have ended.
            waiting.send(done).ok();
        }
        self.moved.notify_waiters();
        Some(Applied { outcome, time })
    }

    /// Whom a token was granted to.
    pub(crate) fn owner(&self, token: FencingToken) -> Option<String> {
        lock(&self.state).tokens.get(&token).cloned()
    }

    /// The newest token that a process was granted for a lease.
    pub(crate) fn newest(&self, name: &LeaseName, process: &str) -> Option<FencingToken> {
        let key = (name.clone(), process.to_owned());
        lock(&self.state).newest.get(&key).copied()
    }

    /// The living sessions of a process.
    pub(crate) fn sessions_of(&self, process: &str) -> Vec<SessionId> {
        let state = lock(&self.state);
        let own = state.owners.iter().filter(|(_, owner)| *owner == process);
        own.map(|(session, _)| *session)
            .filter(|session| state.machine.session(*session).is_some())
            .collect()
    }

    /// How the wait of this request ends. To be called while it is queued.
    pub(crate) fn wait(
        &self,
        session: SessionId,
        number: RequestNumber,
    ) -> oneshot::Receiver<WaitDone> {
        let (tell, done) = oneshot::channel();
        let mut state = lock(&self.state);
        let waits = state.waits.entry((session, number)).or_default();
        waits.push(tell);
        done
    }

    /// The one timer of a leader: a tick at the next deadline, and often enough that the reading can
    /// get there.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        loop {
            let moved = self.moved.notified();
            let Some(pause) = self.until_tick() else {
                moved.await;
                continue;
            };
            tokio::select! {
                biased;
                () = moved => {}
                () = tokio::time::sleep(pause) => drop(self.apply(Command::Tick, None)),
            }
        }
    }

    fn until_tick(&self) -> Option<Duration> {
        let now = self.story.time();
        let mut state = lock(&self.state);
        state.leader?;
        let State {
            machine, reading, ..
        } = &mut *state;
        let due = machine.next_deadline()?;
        let left = due.since(reading.read(machine, now));
        let most = Millis(machine.lead().0 / 2).min(TICK_MAX).max(TICK_MIN);
        Some(Duration::from_millis(left.max(TICK_MIN).min(most).0))
    }

    fn tell(&self, state: &mut State, event: &Event) {
        match event {
            Event::Granted(granted) => {
                let (name, token) = (&granted.name, granted.token);
                let owner = state.owner(granted.session);
                self.story
                    .say(format_args!("{owner} is granted {name} with token {token}"));
                state.tokens.insert(token, owner.clone());
                state.newest.insert((name.clone(), owner), token);
            }
            Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } => {
                let owner = state.owner(*session);
                self.story.say(format_args!(
                    "the grant of {name} to {owner} with token {token} ends: {cause:?}"
                ));
            }
            Event::WaitEnded { .. }
            | Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::Forgotten { .. } => {}
        }
    }
}

impl State {
    fn owner(&self, session: SessionId) -> String {
        let known = self.owners.get(&session).cloned();
        known.unwrap_or_else(|| format!("session {session}"))
    }

    /// Takes out the waits that these events end.
    fn settle(&mut self, events: &[Event]) -> Vec<(oneshot::Sender<WaitDone>, WaitDone)> {
        let mut settled = Vec::new();
        for event in events {
            let keys: Vec<_> = match event {
                Event::Granted(granted) => vec![(granted.session, granted.request)],
                Event::WaitEnded {
                    session, request, ..
                } => vec![(*session, *request)],
                Event::SessionEnded { session, .. } => {
                    let own = self.waits.keys().filter(|key| key.0 == *session);
                    own.copied().collect()
                }
                Event::Ended { .. } | Event::SessionOpened { .. } | Event::Forgotten { .. } => {
                    continue;
                }
            };
            for key in keys {
                let Some(done) = self.done(key, event) else {
                    continue;
                };
                let waiting = self.waits.remove(&key).unwrap_or_default();
                settled.extend(waiting.into_iter().map(|waiting| (waiting, done.clone())));
            }
        }
        settled
    }

    /// How the wait ends with this event; `None` while it goes on.
    fn done(
        &self,
        (session, number): (SessionId, RequestNumber),
        event: &Event,
    ) -> Option<WaitDone> {
        match (self.machine.standing(session, number), event) {
            (Some(Acquired::Waiting { .. }), _) => None,
            (Some(acquired), _) => Some(WaitDone::Settled(acquired)),
            // The session has confirmed the number by now, so only the event still says it.
            (None, Event::WaitEnded { name, why, .. }) => match why {
                WaitEnd::TimedOut => Some(Acquired::TimedOut { name: name.clone() }),
                WaitEnd::Cancelled => Some(Acquired::Cancelled {
                    name: Some(name.clone()),
                }),
                // Rights bind no client here. The end of a session has an event of its own.
                WaitEnd::Refused | WaitEnd::SessionEnded => None,
            }
            .map(WaitDone::Settled),
            (None, _) if self.machine.session(session).is_some() => None,
            (None, _) => Some(WaitDone::SessionGone),
        }
    }
}
