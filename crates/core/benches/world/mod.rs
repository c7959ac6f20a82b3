//! A state machine that is fed by hand, for what measures it.

use std::hint::black_box;

use ringfence_core::{
    Acquire, Ask, ClusterId, ClusterTime, Command, Entry, Form, HolderData, Identity, LeaseName,
    Millis, Mode, Open, OpenId, Outcome, Request, RequestNumber, Secret, SessionId, Settings,
    StateMachine, WallTime,
};

/// A cluster whose commands are applied one behind the other.
pub(crate) struct World {
    pub(crate) machine: StateMachine,
    index: u64,
    /// Of the next command, in milliseconds.
    pub(crate) time: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            machine: StateMachine::new(),
            index: 0,
            time: 0,
        };
        world.apply(Command::TermStart { unix_seconds: None });
        let cluster = ClusterId::new([1; 16]);
        let settings = Settings::STANDARD;
        world.apply(Command::Form(Form {
            cluster,
            token_floor: Some(0),
            settings,
            mode: Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        }));
        world
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let (index, time) = (self.index, ClusterTime(self.time));
        let entry = Entry {
            index,
            term: 1,
            time,
            wall: WallTime(0),
            command,
        };
        let mut events = Vec::new();
        black_box(self.machine.apply(black_box(&entry), &mut events))
    }

    pub(crate) fn open(&mut self, n: u64) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&n.to_le_bytes());
        let identity = Identity::parse("bench").unwrap();
        let open = Open {
            id: OpenId::new(id),
            secret: Secret::new([7; 16]),
            seen: None,
            ttl: Millis(15_000),
            identity,
            acquire: None,
        };
        match self.apply(Command::Open(open)) {
            Outcome::Opened(opened) => opened.session,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn ask(session: SessionId, number: u64, ask: Ask) -> Command {
    let number = RequestNumber::new(number).unwrap();
    Command::Request(Request {
        session,
        secret: Secret::new([7; 16]),
        number,
        lowest: number,
        ask,
    })
}

pub(crate) fn acquire(name: &LeaseName, wait: Option<Millis>) -> Ask {
    let (data, lock_delay) = (HolderData::default(), Millis(0));
    Ask::Acquire(Acquire {
        name: name.clone(),
        wait,
        data,
        lock_delay,
    })
}
