//! A cluster of one state machine in virtual time, with clients that lose messages, repeat requests,
//! crash, and are revoked: whatever it records, a correct service has shown.

mod clients;
mod messages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_check::history::{
    Header, Note, Outcome as Told, Record, WatchCause, WatchEvent, WatchKind, WatchProgress,
    WatchStarted,
};
use ringfence_check::log::Logged;
use ringfence_core::{
    ClusterId, ClusterTime, Command, EndCause, Entry, Event, Form, LEVEL_REPEATS, Millis, Outcome,
    Settings, StateMachine, WaitEnd, WallTime,
};

use clients::{Call, Client};
use messages::Message;

pub(crate) const MS: u64 = 1_000_000;
/// How far clocks are off, at most, in parts per million.
const RATE_PPM: i64 = 9_900;

/// How much is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) seed: u64,
    pub(crate) clients: u32,
    pub(crate) leases: u32,
    pub(crate) calls: u64,
    /// Whether messages are lost, clients crash and leaders change.
    pub(crate) trouble: bool,
}

/// What was recorded.
pub(crate) struct Recorded {
    pub(crate) records: Vec<Record>,
    pub(crate) log: Vec<Logged>,
}

pub(crate) struct World {
    play: Play,
    rng: StdRng,
    now: u64,
    seq: u64,
    due: BinaryHeap<Reverse<(u64, u64, Message)>>,
    machine: StateMachine,
    log: Vec<Logged>,
    records: Vec<Record>,
    clients: Vec<Client>,
    calls: HashMap<u64, Call>,
    next_call: u64,
    /// Which call waits, by session and request number.
    waiting: HashMap<(u64, u64), u64>,
    term: u64,
    /// The leader's reading, in ns, and when it was taken.
    reading: u64,
    read_at: u64,
    rate_ppm: i64,
    marks: BTreeMap<String, u64>,
    commits: u64,
    /// Until when the messages of each watch have been reported, and the last position.
    watches: [(u64, Option<(u64, u32)>); 2],
}

const PREFIXES: [&str; 2] = ["", "lease-0"];

pub(crate) fn play(play: Play) -> Recorded {
    let mut world = World::new(play);
    world.run();
    Recorded {
        records: world.records,
        log: world.log,
    }
}

impl Recorded {
    pub(crate) fn header() -> Header {
        Header::new("world")
    }
}

impl World {
    fn new(play: Play) -> Self {
        let mut world = Self {
            play,
            rng: StdRng::seed_from_u64(play.seed),
            now: 1_000 * MS,
            seq: 0,
            due: BinaryHeap::new(),
            machine: StateMachine::new(),
            log: Vec::new(),
            records: Vec::new(),
            clients: Vec::new(),
            calls: HashMap::new(),
            next_call: 1,
            waiting: HashMap::new(),
            term: 0,
            reading: 0,
            read_at: 1_000 * MS,
            rate_ppm: 0,
            marks: BTreeMap::new(),
            commits: 0,
            watches: [(0, None); 2],
        };
        world.new_term();
        world.apply(Command::Form(Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: Some(0),
            settings: Settings {
                ttl_min: Millis(100),
                ..Settings::STANDARD
            },
            mode: ringfence_core::Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        }));
        world.apply(Command::RaiseLevel {
            level: LEVEL_REPEATS,
        });
        for (watcher, prefix) in (0..).zip(PREFIXES) {
            world.record(Record::WatchStarted(WatchStarted {
                watcher,
                client: 1_000 + watcher,
                t: world.now,
                prefix: prefix.to_owned(),
                after: Some((2, 0)),
            }));
        }
        for id in 0..play.clients {
            world.clients.push(Client::new(id));
            let at = world.now + world.rng.random_range(0..20 * MS);
            world.at(at, Message::Act(id));
        }
        world.at(world.now + 5 * MS, Message::Tick);
        world
    }

    fn run(&mut self) {
        while self.next_call <= self.play.calls || !self.calls.is_empty() {
            let Some(Reverse((now, _, message))) = self.due.pop() else {
                break;
            };
            self.now = now;
            self.handle(message);
        }
        for client in 0..self.clients.len() {
            self.end_beliefs(client, ringfence_check::history::BeliefEnd::RecordingEnded);
        }
        let text = "the end".to_owned();
        self.record(Record::Note(Note { t: None, text }));
    }

    fn at(&mut self, t: u64, message: Message) {
        self.seq += 1;
        self.due.push(Reverse((t, self.seq, message)));
    }

    fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.play.trouble && self.rng.random_range(0..100) < percent
    }

    fn delay(&mut self) -> u64 {
        self.rng.random_range(MS / 20..2 * MS)
    }

    fn new_term(&mut self) {
        self.term += 1;
        self.rate_ppm = self.rng.random_range(-RATE_PPM..=RATE_PPM);
        self.reading = self.machine.time().0 * MS;
        self.read_at = self.now;
        // A leader's first entry is none of the state machine's business.
        let index = self.log.len() as u64 + 1;
        self.machine.skip(index);
        let term = self.term;
        self.log.push(Logged {
            index,
            term,
            entry: None,
        });
        self.apply(Command::TermStart { unix_seconds: None });
    }

    /// Puts a command into the log and carries it out everywhere at once.
    fn apply(&mut self, command: Command) -> Outcome {
        let passed = self.now - self.read_at;
        let fast = passed as i128 * i128::from(1_000_000 + self.rate_ppm) / 1_000_000;
        self.reading += u64::try_from(fast).unwrap();
        self.read_at = self.now;
        let entry = Entry {
            index: self.log.len() as u64 + 1,
            term: self.term,
            time: ClusterTime(self.reading / MS),
            wall: WallTime(self.now / MS),
            command,
        };
        let mut events = Vec::new();
        let outcome = self.machine.apply(&entry, &mut events);
        let index = entry.index;
        self.log.push(entry.into());
        for (event, n) in events.iter().zip(1..) {
            self.happened(index, n, event);
        }
        outcome
    }

    fn happened(&mut self, index: u64, n: u32, event: &Event) {
        match event {
            Event::Granted(granted) => {
                let token = granted.token.get();
                let key = (granted.session.get(), granted.request.get());
                self.wake(key, Told::Granted { token });
                let session = granted.session.get();
                let name = granted.name.as_str();
                self.tell(index, n, WatchKind::Granted, name, token, session);
            }
            Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } => {
                let cause = match cause {
                    EndCause::Released => WatchCause::Released,
                    EndCause::Expired => WatchCause::Expired,
                    EndCause::Closed => WatchCause::Closed,
                    EndCause::Revoked { .. } => WatchCause::Revoked,
                    EndCause::Evicted { .. } => WatchCause::Evicted,
                    EndCause::Transferred { .. } => WatchCause::Transferred,
                    EndCause::PodEnded { .. } => WatchCause::PodEnded,
                };
                let kind = WatchKind::Ended(cause);
                self.tell(index, n, kind, name.as_str(), token.get(), session.get());
            }
            Event::WaitEnded {
                session,
                request,
                why,
                ..
            } => {
                let told = match why {
                    WaitEnd::TimedOut => Told::TimedOut,
                    WaitEnd::Cancelled => Told::Cancelled,
                    WaitEnd::SessionEnded | WaitEnd::Refused => Told::SessionExpired,
                };
                self.wake((session.get(), request.get()), told);
            }
            _ => {}
        }
    }

    /// Answers a call that waits.
    fn wake(&mut self, key: (u64, u64), told: Told) {
        if let Some(call) = self.waiting.remove(&key) {
            let at = self.now + self.delay();
            self.at(at, Message::Reply(call, told));
        }
    }

    fn tell(&mut self, index: u64, n: u32, kind: WatchKind, lease: &str, token: u64, session: u64) {
        for (watcher, prefix) in (0_u32..).zip(PREFIXES) {
            let at = watcher as usize;
            if !lease.starts_with(prefix) {
                continue;
            }
            let t = self.watches[at]
                .0
                .max(self.now + self.rng.random_range(0..3 * MS));
            if self.chance(2) {
                // It breaks, goes on elsewhere, and learns how far it is.
                let after = self.watches[at].1.or(Some((2, 0)));
                self.record(Record::WatchStarted(WatchStarted {
                    watcher,
                    client: 1_000 + watcher,
                    t,
                    prefix: prefix.to_owned(),
                    after,
                }));
                self.record(Record::WatchProgress(WatchProgress {
                    watcher,
                    t,
                    index: index - 1,
                }));
            }
            self.watches[at] = (t, Some((index, n)));
            self.record(Record::WatchEvent(WatchEvent {
                watcher,
                t,
                index,
                n,
                kind,
                lease: lease.to_owned(),
                token,
                session: Some(session),
                holder: None,
            }));
        }
    }
}
