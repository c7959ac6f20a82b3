//! More ends at once than one entry may carry out: the rest follows with ticks, no entry does more
//! than its budget, no session that is due is granted anything, and the outcome is that of a model
//! that knows no budget.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use ringfence_core::{
    Acquire, Ask, ClusterId, ClusterTime, Command, Configure, ENDS_PER_ENTRY_MAX, Entry, Event,
    Form, GRANTS_PER_ENTRY_MAX, HolderData, Identity, LEVEL_REPEATS, LeaseName, Millis, Open,
    OpenId, Outcome, Renew, Renewed, Request, RequestNumber, Secret, SessionId, Settings,
    StateMachine, WallTime,
};
use ringfence_testkit::invariants::{Checkers, Step, equal_states};
use ringfence_testkit::model::Model;
use ringfence_testkit::view::View;

/// Sessions that end together, a few more than one entry ends.
const DYING: u64 = 1_050;
/// How many leases each of them holds; the model takes a minute or two for 10.
const LEASES_EACH: u64 = 1;
/// Sessions that outlive the storm and wait for all those leases.
const HEIRS: u64 = 3;
const STORM: ClusterTime = ClusterTime(10_000);

struct Storm {
    machine: StateMachine,
    model: Model,
    index: u64,
}

impl Storm {
    /// Applies an entry to both; the events of the machine.
    fn both(&mut self, time: ClusterTime, command: Command) -> Vec<Event> {
        let entry = self.entry(time, command);
        let (outcome, _) = self.model.apply(&entry);
        let mut events = Vec::new();
        assert_eq!(self.machine.apply(&entry, &mut events), outcome);
        events
    }

    /// Applies an entry to the machine alone; what it did.
    fn step(&mut self, term: u64, time: ClusterTime, command: Command) -> Step {
        let entry = Entry {
            term,
            ..self.entry(time, command)
        };
        let (before, mut events) = (View::of(&self.machine), Vec::new());
        let outcome = self.machine.apply(&entry, &mut events);
        Step {
            before: Arc::new(before),
            entry,
            outcome,
            events,
            after: Arc::new(View::of(&self.machine)),
        }
    }

    fn entry(&mut self, time: ClusterTime, command: Command) -> Entry {
        self.index += 1;
        Entry {
            index: self.index,
            term: 1,
            time,
            wall: WallTime(0),
            command,
        }
    }

    fn open(&mut self, number: u64, ttl: Millis) -> SessionId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let open = Open {
            id: OpenId::new(bytes),
            secret: Secret::new([1; 16]),
            seen: None,
            ttl,
            identity: Identity::parse("").unwrap(),
            acquire: None,
        };
        self.both(ClusterTime(0), Command::Open(open));
        SessionId::new(number).unwrap()
    }

    fn acquire(&mut self, session: SessionId, number: u64, lease: u64) {
        let number = RequestNumber::new(number).unwrap();
        let request = Request {
            session,
            secret: Secret::new([1; 16]),
            number,
            lowest: number,
            ask: Ask::Acquire(Acquire {
                name: LeaseName::parse(&format!("lease/{lease:06}")).unwrap(),
                wait: Some(Millis(100_000)),
                data: HolderData::default(),
                lock_delay: Millis(0),
            }),
        };
        self.both(ClusterTime(0), Command::Request(request));
    }
}

fn formed() -> Storm {
    let mut storm = Storm {
        machine: StateMachine::new(),
        model: Model::new(),
        index: 0,
    };
    let unix_seconds = None;
    storm.both(ClusterTime(0), Command::TermStart { unix_seconds });
    let form = Form {
        cluster: ClusterId::new([1; 16]),
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode: ringfence_core::Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    };
    storm.both(ClusterTime(0), Command::Form(form));
    storm
}

fn at_the_level_of_repeats() -> Storm {
    let mut storm = formed();
    let level = LEVEL_REPEATS;
    storm.both(ClusterTime(0), Command::RaiseLevel { level });
    storm
}

/// Every session holds leases, waits for one of its neighbour's, and dies; the heirs wait behind
/// them.
fn brewing() -> Storm {
    let mut storm = formed();
    for dying in 0..DYING {
        let session = storm.open(dying + 1, Millis(STORM.0));
        for at in 0..LEASES_EACH {
            storm.acquire(session, at + 1, dying * LEASES_EACH + at);
        }
    }
    for dying in 0..DYING {
        let neighbours = ((dying + 1) % DYING) * LEASES_EACH;
        let session = SessionId::new(dying + 1).unwrap();
        storm.acquire(session, LEASES_EACH + 1, neighbours);
    }
    for heir in 0..HEIRS {
        let session = storm.open(DYING + heir + 1, Millis::from_secs(300));
        for lease in (heir..DYING * LEASES_EACH).step_by(HEIRS as usize) {
            // Each waits, so the numbers below are never confirmed: 256 of them at most.
            if lease / HEIRS < 256 {
                storm.acquire(session, lease / HEIRS + 1, lease);
            }
        }
    }
    storm
}

#[test]
fn a_storm_of_ends_is_worked_off_in_bounded_entries() {
    let mut storm = brewing();
    let mut told = 0;
    loop {
        let tick = storm.entry(STORM, Command::Tick);
        if told == 0 {
            storm.model.apply(&tick);
        }
        let mut events = Vec::new();
        storm.machine.apply(&tick, &mut events);
        told += 1;
        check_entry(&events);
        equal_states::restored(&storm.machine).unwrap();
        if storm.machine.next_deadline() > Some(STORM) {
            break;
        }
    }
    assert!(told > 1, "one entry was enough, so nothing was shown");
    assert!(told < 20, "{told} entries were needed");

    let view = View::of(&storm.machine);
    let held = view.leases.iter().filter_map(|lease| {
        let grant = lease.grant.as_ref()?;
        Some((&lease.name, grant.session))
    });
    assert!(storm.model.holders().eq(held));
    assert_eq!(storm.model.summary(), storm.machine.summary());
}

/// Of the sessions that an entry lists as ended, those that it did not reach are still there: to
/// tell their end is for the entry that carries it out, and a new term may come before it.
#[test]
fn a_due_session_that_the_budget_did_not_reach_is_not_renewed_and_not_ended() {
    let mut storm = brewing();
    let last = SessionId::new(DYING).unwrap();
    let secret = Secret::new([1; 16]);
    let mut checkers = Checkers::default();
    let mut resurrected = |step: &Step| {
        let found = checkers.check_all(step);
        found.into_iter().find(|found| found.invariant == "I10")
    };
    let renew = Renew {
        sessions: vec![last],
        acknowledged: Vec::new(),
    };

    let unreached = storm.step(1, STORM, Command::Renew(renew.clone()));
    let listed = Renewed {
        time: STORM,
        ended: vec![last],
        lost: Vec::new(),
    };
    assert_eq!(unreached.outcome, Outcome::Renewed(listed));
    assert_eq!(storm.machine.authenticate(last, &secret), Ok(()));
    assert_eq!(resurrected(&unreached), None);

    let unix_seconds = None;
    let saved = storm.step(2, STORM, Command::TermStart { unix_seconds });
    assert_eq!(resurrected(&saved), None, "nobody was told of its end");
    let renewed = storm.step(2, STORM, Command::Renew(renew));
    let kept = Renewed {
        time: STORM,
        ..Renewed::default()
    };
    assert_eq!(renewed.outcome, Outcome::Renewed(kept));
    assert_eq!(resurrected(&renewed), None);
}

fn check_entry(events: &[Event]) {
    let dying = |id: &SessionId| id.get() <= DYING;
    let (mut grants, mut ended, mut endings) = (0, BTreeSet::new(), 0);
    for event in events {
        match event {
            Event::Granted(granted) => {
                assert!(!dying(&granted.session), "{granted:?} is due");
                grants += 1;
            }
            Event::SessionEnded { session, .. } => {
                assert!(ended.insert(*session), "{session:?} ended twice");
            }
            Event::Ended { .. } | Event::WaitEnded { .. } => endings += 1,
            Event::SessionOpened { .. } | Event::Forgotten { .. } => {}
        }
    }
    assert!(ended.len() <= ENDS_PER_ENTRY_MAX as usize);
    assert!(grants <= GRANTS_PER_ENTRY_MAX);
    // The last session of an entry is not cut in two.
    assert!(endings <= u64::from(GRANTS_PER_ENTRY_MAX) + LEASES_EACH + 1);
}

/// A retention that is lowered over many names holds for all of them at once. Who waits for a holder
/// that is gone does not wait for these.
#[test]
fn names_that_are_forgotten_together_keep_nobody_waiting() {
    const NAMES: u64 = 5_000;
    let mut storm = at_the_level_of_repeats();
    for owner in 0..NAMES / 250 {
        let session = storm.open(owner + 1, Millis::from_secs(300));
        for at in 0..250 {
            storm.acquire(session, at + 1, owner * 250 + at);
        }
        let secret = Secret::new([1; 16]);
        storm.both(ClusterTime(0), Command::Close { session, secret });
    }
    let gone = storm.open(NAMES / 250 + 1, Millis(STORM.0));
    storm.acquire(gone, 1, NAMES);
    let settings = Settings {
        idle_retention: Millis::from_secs(1),
        ..Settings::STANDARD
    };
    let based_on = 2;
    let configure = Command::Configure(Configure { based_on, settings });
    let mut events = storm.step(1, STORM, configure).events;
    let ended = |events: &[Event]| {
        let is_end = |event: &Event| matches!(event, Event::SessionEnded { session, .. } if *session == gone);
        events.iter().any(is_end)
    };
    let forgotten = |events: &[Event]| {
        let is_forgotten = |event: &&Event| matches!(event, Event::Forgotten { .. });
        events.iter().filter(is_forgotten).count() as u64
    };
    let mut entries = vec![];
    for _ in 0..10 {
        entries.push((ended(&events), forgotten(&events)));
        events = storm.step(1, STORM, Command::Tick).events;
    }
    let first_end = entries.iter().position(|(ended, _)| *ended);
    assert_eq!(first_end, Some(0), "{entries:?}");
    assert!(
        entries.iter().all(|(_, names)| *names <= 2_000),
        "{entries:?}"
    );
    let names: u64 = entries.iter().map(|(_, names)| names).sum();
    assert_eq!(names, NAMES, "{entries:?}");
}
