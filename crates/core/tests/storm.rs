//! More ends at once than one entry may carry out: the rest follows with ticks, no entry does more
//! than its budget, nobody who is due is granted anything, and the outcome is that of a model that
//! knows no budget.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use ringfence_core::{
    Acquire, Ask, ClusterId, ClusterTime, Command, ENDS_PER_ENTRY_MAX, Entry, Event, Form,
    GRANTS_PER_ENTRY_MAX, HolderData, Identity, LeaseName, Millis, Open, OpenId, Request,
    RequestNumber, Secret, SessionId, Settings, StateMachine, WallTime,
};
use ringfence_testkit::invariants::equal_states;
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

/// Everybody holds leases, waits for one of its neighbour's, and dies; the heirs wait behind them.
fn brewing() -> Storm {
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
    };
    storm.both(ClusterTime(0), Command::Form(form));
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
