//! A state machine that was formed, and entries for it one by one.

use ringfence_core::{
    ClusterId, ClusterTime, Command, Entry, Event, Form, LEVEL_REPEATS, Outcome, SessionId,
    Settings, StateMachine, WallTime,
};

/// See the module.
pub(crate) struct World {
    pub(crate) machine: StateMachine,
    /// The cluster time of the next entry.
    pub(crate) time: ClusterTime,
    /// What the last entry reported to watchers.
    pub(crate) events: Vec<Event>,
    index: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::formed(LEVEL_REPEATS, Settings::STANDARD)
    }

    pub(crate) fn formed(level: u32, settings: Settings) -> Self {
        let mut world = Self {
            machine: StateMachine::new(),
            time: ClusterTime(0),
            events: Vec::new(),
            index: 0,
        };
        world.apply(Command::TermStart { unix_seconds: None });
        world.apply(Command::Form(Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: Some(0),
            settings,
            mode: ringfence_core::Mode::Off,
            quiet_time: ringfence_core::Millis(0),
            restored: None,
        }));
        world.apply(Command::RaiseLevel { level });
        world
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            index: self.index,
            term: 1,
            time: self.time,
            wall: WallTime(self.time.0),
            command,
        };
        self.events.clear();
        self.machine.apply(&entry, &mut self.events)
    }
}

/// The session that was opened.
pub(crate) fn opened(outcome: Outcome) -> SessionId {
    match outcome {
        Outcome::Opened(opened) => opened.session,
        other => panic!("{other:?}"),
    }
}
