//! Below a level the state is what release 0.1.0 makes of the same log; what each test expects there
//! is what that release answered. From the level on it is the new behaviour.
#![allow(clippy::unwrap_used)]

mod world;

use ringfence_core::snapshot::Record;
use ringfence_core::{
    AccessChange, Acquire, Acquired, Ask, Called, Caller, ChangeAccess, ClusterId, Command,
    Configure, Event, FencingToken, HolderData, Identity, LEVEL_ACCESS, LEVEL_FIRST, LEVEL_REPEATS,
    LeaseName, Limit, Millis, Mode, NamePattern, Open, OpenId, Outcome, Principal,
    PrincipalPattern, Rejection, Request, RequestNumber, Revoke, Rule, Secret, SessionId, Settings,
    StateMachine, Verb,
};
use world::{World, opened};

const DAY: Millis = Millis::from_secs(24 * 3_600);

fn name(text: &str) -> LeaseName {
    LeaseName::parse(text).unwrap()
}

fn with_names(leases_max: u64) -> Settings {
    Settings {
        leases_max,
        ..Settings::STANDARD
    }
}

impl World {
    fn at(&mut self, millis: u64) {
        self.time.0 = millis;
    }

    /// Its secret is its number.
    fn open(&mut self, number: u8, ttl: Millis) -> SessionId {
        opened(self.apply(Command::Open(Open {
            id: OpenId::new([number; 16]),
            secret: Secret::new([number; 16]),
            seen: None,
            ttl,
            identity: Identity::parse("holder").unwrap(),
            acquire: None,
        })))
    }

    fn ask(&mut self, session: u8, number: u64, ask: Ask) -> Outcome {
        let number = RequestNumber::new(number).unwrap();
        self.apply(Command::Request(Request {
            session: SessionId::new(session.into()).unwrap(),
            secret: Secret::new([session; 16]),
            number,
            lowest: number,
            ask,
        }))
    }

    fn take(&mut self, session: u8, number: u64, lease: &str) -> Outcome {
        let acquire = Acquire {
            name: name(lease),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        self.ask(session, number, Ask::Acquire(acquire))
    }

    fn close(&mut self, session: u8) {
        self.apply(Command::Close {
            session: SessionId::new(session.into()).unwrap(),
            secret: Secret::new([session; 16]),
        });
    }

    fn raise(&mut self, level: u32) {
        self.apply(Command::RaiseLevel { level });
    }

    /// Goes on with what a snapshot keeps of it.
    fn restore(&mut self) {
        let records: Vec<_> = self.machine.records().collect();
        self.machine = StateMachine::restore(records).unwrap();
    }
}

fn granted_to(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Acquired(Acquired::Granted(granted)) => Some(granted.session.get()),
        _ => None,
    }
}

/// `a` is held and `b` has been idle for 1,000 s, with no room for more, when the retention is lowered
/// to a minute.
fn with_a_lowered_retention(level: u32) -> World {
    let settings = with_names(2);
    let mut world = World::formed(level, settings);
    world.open(1, Millis::from_secs(300));
    world.take(1, 1, "a");
    world.take(1, 2, "b");
    let (name, token) = (name("b"), FencingToken::new(2).unwrap());
    let close = false;
    world.ask(1, 3, Ask::Release { name, token, close });
    for step in 1..=10 {
        world.at(step * 100_000);
        // It renews the session.
        world.take(1, 3 + step, "a");
    }
    let settings = Settings {
        idle_retention: Millis::from_secs(60),
        ..settings
    };
    let based_on = world.machine.settings_set_at();
    let lowered = world.apply(Command::Configure(Configure { based_on, settings }));
    assert_eq!(lowered, Outcome::Done);
    world
}

#[test]
fn a_lowered_retention_moves_idle_names_from_its_level_on() {
    let mut world = with_a_lowered_retention(LEVEL_FIRST);
    world.restore();
    world.apply(Command::Tick);
    let full = Outcome::Rejected(Rejection::Limit(Limit::Leases(2)));
    assert_eq!(world.take(1, 20, "c"), full);
    assert!(world.machine.get(&name("b")).is_some());
    assert!(world.machine.next_deadline() > Some(world.time));

    let mut world = with_a_lowered_retention(LEVEL_REPEATS);
    assert_eq!(world.machine.next_deadline().map(|at| at.0), Some(60_000));
    world.apply(Command::Tick);
    assert_eq!(world.machine.get(&name("b")), None);
    assert_eq!(granted_to(&world.take(1, 20, "c")), Some(1));
}

#[test]
fn idle_names_of_before_the_level_are_forgotten_as_the_level_says() {
    let mut world = with_a_lowered_retention(LEVEL_FIRST);
    world.restore();
    world.raise(LEVEL_REPEATS);
    assert_eq!(world.machine.next_deadline().map(|at| at.0), Some(60_000));
    world.restore();
    world.apply(Command::Tick);
    assert_eq!(world.machine.get(&name("b")), None);
}

/// 24,000 names came free at once, a day ago. They are due 200 ms after a session is; both are due
/// when another session asks for what the first one holds.
fn names_due_beside_a_session(level: u32) -> Outcome {
    let mut world = World::formed(level, with_names(1_000_000));
    for session in 1..=6 {
        world.open(session, Millis::from_secs(300));
        for number in 1..=4_000 {
            world.take(session, number, &format!("l/{session}/{number}"));
        }
    }
    for session in 1..=6 {
        world.close(session);
    }
    world.at(DAY.0 - 14_800);
    world.apply(Command::Tick);
    world.open(7, Millis::from_secs(15));
    world.take(7, 1, "job");
    world.at(DAY.0 - 100);
    world.open(8, Millis::from_secs(300));
    world.at(DAY.0 + 400);
    world.take(8, 1, "job")
}

#[test]
fn idle_names_come_after_who_is_due_from_their_level_on() {
    let refused = names_due_beside_a_session(LEVEL_FIRST);
    let held = matches!(
        &refused,
        Outcome::Rejected(Rejection::Held { holder, .. }) if holder.session.get() == 7
    );
    assert!(held, "{refused:?}");

    let granted = names_due_beside_a_session(LEVEL_REPEATS);
    assert_eq!(granted_to(&granted), Some(8), "{granted:?}");
}

/// How many of 2,500 names that are due together one entry forgets.
fn forgotten_by_one_entry(mut world: World) -> usize {
    world.open(1, Millis::from_secs(300));
    for number in 1..=2_500 {
        world.take(1, number, &format!("l/{number}"));
    }
    world.close(1);
    world.at(DAY.0 + 1);
    world.apply(Command::Tick);
    let forgotten = |event: &&Event| matches!(event, Event::Forgotten { .. });
    world.events.iter().filter(forgotten).count()
}

#[test]
fn one_entry_forgets_no_more_than_its_share_from_its_level_on() {
    let below = World::formed(LEVEL_FIRST, Settings::STANDARD);
    assert_eq!(forgotten_by_one_entry(below), 2_500);
    assert_eq!(forgotten_by_one_entry(World::new()), 2_000);
}

/// Who asks decides what the answer shows, and not what becomes of the state: no level begins with it.
#[test]
fn a_refused_revoke_leaves_one_state_whatever_its_answer_shows() {
    let revoked_by = |principal: &str| {
        let mut world = World::formed(LEVEL_ACCESS, Settings::STANDARD);
        world.open(1, Millis::from_secs(60));
        world.take(1, 1, "team/x");
        let rules = [
            ("cert:cn:bob", Verb::Revoke),
            ("cert:cn:carol", Verb::Revoke),
            ("cert:cn:carol", Verb::Observe),
        ];
        let rules = rules.map(|(who, verb)| {
            AccessChange::AddRule(Rule {
                principals: PrincipalPattern::parse(who).unwrap(),
                verb,
                names: Some(NamePattern::parse("team/*").unwrap()),
            })
        });
        let mode = AccessChange::SetMode(Mode::Enforced);
        let change = ChangeAccess {
            cluster: ClusterId::new([1; 16]),
            based_on: 0,
            changes: rules.into_iter().chain([mode]).collect(),
        };
        let mut ask = |principal: Principal, command| {
            let caller = Caller {
                principal,
                token: None,
                node: 1,
            };
            world.apply(Command::Called(Box::new(Called { caller, command })))
        };
        let changed = ask(Principal::local(), Command::ChangeAccess(change));
        assert!(
            matches!(changed, Outcome::AccessChanged { .. }),
            "{changed:?}"
        );
        let revoke = Revoke {
            name: name("team/x"),
            token: FencingToken::new(9).unwrap(),
            now: false,
            reason: String::new(),
            operator: String::new(),
        };
        let principal = Principal::parse(principal).unwrap();
        let Outcome::Rejected(refused) = ask(principal, Command::Revoke(revoke)) else {
            panic!("no grant has that token");
        };
        let records: Vec<Record> = world.machine.records().collect();
        (refused, records)
    };
    let (hidden, of_bob) = revoked_by("cert:cn:bob");
    let (shown, of_carol) = revoked_by("cert:cn:carol");
    let current = |refused| match refused {
        Rejection::StaleToken { current, .. } => current.map(FencingToken::get),
        other => panic!("{other:?}"),
    };
    assert_eq!((current(hidden), current(shown)), (None, Some(1)));
    assert_eq!(of_bob, of_carol);
}
