//! What it costs an entry that its caller is named and judged: acquires and releases of 10,000
//! sessions in turn, with and without principals, rules and rights that bind.
//!
//! `cargo bench -p ringfence-core --bench rights`. Prints one line per figure: the least time of an
//! entry in any round, since what is more comes from other work of the machine.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_core::{
    AccessChange, Acquire, Ask, Called, Caller, ChangeAccess, ClusterId, ClusterTime, Command,
    Entry, FencingToken, Form, HolderData, Identity, LeaseName, Millis, Mode, NamePattern, Open,
    OpenId, Outcome, Principal, PrincipalPattern, Request, RequestNumber, Rule, Secret, SessionId,
    Settings, StateMachine, Verb, WallTime,
};

const SESSIONS: usize = 10_000;
const ROUNDS: u64 = 25;
/// Of sessions, between two looks at the clock.
const BLOCK: usize = 500;

/// A cluster whose sessions are at work.
struct World {
    what: &'static str,
    machine: StateMachine,
    index: u64,
    workers: Vec<Worker>,
    least: Duration,
}

struct Worker {
    caller: Option<Caller>,
    session: SessionId,
    name: LeaseName,
}

impl World {
    /// One with so many principals (none: callers prove nothing) and rules.
    fn new(what: &'static str, mode: Mode, principals: usize, rules: usize) -> Self {
        let mut world = Self {
            what,
            machine: StateMachine::new(),
            index: 0,
            workers: Vec::new(),
            least: Duration::MAX,
        };
        world.apply(Command::TermStart { unix_seconds: None });
        world.apply(Command::Form(Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: Some(0),
            settings: Settings::STANDARD,
            mode: Mode::Permissive,
            quiet_time: Millis(0),
            restored: None,
        }));
        world.change(
            (0..rules)
                .map(|number| AccessChange::AddRule(rule(number)))
                .collect(),
        );
        world.change(vec![AccessChange::SetMode(mode)]);
        for number in 0..SESSIONS {
            let caller = (principals > 0).then(|| Caller {
                principal: principal(number % principals),
                token: None,
                node: 1,
            });
            world.open(number, caller);
        }
        world
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            index: self.index,
            term: 1,
            time: ClusterTime(0),
            wall: WallTime(0),
            command,
        };
        black_box(self.machine.apply(black_box(&entry), &mut Vec::new()))
    }

    fn change(&mut self, changes: Vec<AccessChange>) {
        for part in changes.chunks(32) {
            let change = Command::ChangeAccess(ChangeAccess {
                cluster: ClusterId::new([1; 16]),
                based_on: self.machine.access().set_at(),
                changes: part.to_vec(),
            });
            let local = Caller {
                principal: Principal::local(),
                token: None,
                node: 1,
            };
            match self.apply(called(Some(local), change)) {
                Outcome::AccessChanged { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn open(&mut self, number: usize, caller: Option<Caller>) {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        let open = Command::Open(Open {
            id: OpenId::new(id),
            secret: Secret::new([7; 16]),
            seen: None,
            ttl: Millis(15_000),
            identity: Identity::parse("bench").unwrap(),
            acquire: None,
        });
        match self.apply(called(caller.clone(), open)) {
            Outcome::Opened(opened) => self.workers.push(Worker {
                caller,
                session: opened.session,
                name: LeaseName::parse(&format!("k8s/team-{}/lease-{number}", number % 100))
                    .unwrap(),
            }),
            other => panic!("{other:?}"),
        }
    }

    /// Each session acquires and releases.
    fn round(&mut self, round: u64) {
        for block in 0..SESSIONS / BLOCK {
            // In another order than that of the principals, as clients come.
            let mut commands = Vec::with_capacity(2 * BLOCK);
            for at in 0..BLOCK {
                let worker = &self.workers[(block * BLOCK + at) * 7_919 % SESSIONS];
                let acquire = Ask::Acquire(Acquire {
                    name: worker.name.clone(),
                    wait: None,
                    data: HolderData::default(),
                    lock_delay: Millis(0),
                });
                let token = self.machine.summary().last_token + 1 + at as u64;
                let release = Ask::Release {
                    name: worker.name.clone(),
                    token: FencingToken::new(token).unwrap(),
                    close: false,
                };
                commands.push(worker.asks(2 * round + 1, acquire));
                commands.push(worker.asks(2 * round + 2, release));
            }
            let (start, entries) = (Instant::now(), commands.len());
            for command in commands {
                match self.apply(command) {
                    Outcome::Acquired(_) | Outcome::Released { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            self.least = self
                .least
                .min(start.elapsed() / u32::try_from(entries).unwrap());
        }
    }
}

impl Worker {
    fn asks(&self, number: u64, ask: Ask) -> Command {
        let number = RequestNumber::new(number).unwrap();
        let request = Command::Request(Request {
            session: self.session,
            secret: Secret::new([7; 16]),
            number,
            lowest: number,
            ask,
        });
        // As from the log: no text is shared with what is remembered.
        let caller = self.caller.as_ref().map(|caller| Caller {
            principal: Principal::parse(caller.principal.as_str()).unwrap(),
            ..caller.clone()
        });
        called(caller, request)
    }
}

fn called(caller: Option<Caller>, command: Command) -> Command {
    match caller {
        Some(caller) => Command::Called(Box::new(Called { caller, command })),
        None => command,
    }
}

fn principal(number: usize) -> Principal {
    Principal::parse(&format!("sa:prod:team-{}/worker-{number}", number % 100)).unwrap()
}

/// The first is for all that are in none of the others.
fn rule(number: usize) -> Rule {
    let (principals, names) = match number {
        0 => ("sa:prod:*".to_owned(), NamePattern::all()),
        _ => (
            principal(number).as_str().to_owned(),
            NamePattern::parse(&format!("k8s/team-{}/*", number % 100)).unwrap(),
        ),
    };
    Rule {
        principals: PrincipalPattern::parse(&principals).unwrap(),
        verb: Verb::Acquire,
        names: Some(names),
    }
}

fn main() {
    let mut worlds = [
        World::new("off, no principal", Mode::Off, 0, 1),
        World::new("off, 10,000 principals", Mode::Off, SESSIONS, 1),
        World::new("enforced, 1 principal, 1 rule", Mode::Enforced, 1, 1),
        World::new(
            "enforced, 10,000 principals, 1 rule",
            Mode::Enforced,
            SESSIONS,
            1,
        ),
        World::new(
            "enforced, 10,000 principals, 1,000 rules",
            Mode::Enforced,
            SESSIONS,
            1_000,
        ),
    ];
    for round in 0..ROUNDS {
        worlds.iter_mut().for_each(|world| world.round(round));
    }
    for world in &worlds {
        println!(
            "{:>45}: {:>6.0} ns an entry",
            world.what,
            world.least.as_secs_f64() * 1e9
        );
    }
}
