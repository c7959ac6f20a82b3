//! How many bytes the state needs per session that holds a lease.
//!
//! `cargo bench -p ringfence-core --bench memory` counts what is asked of the allocator; a real one
//! rounds each block up.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use ringfence_core::snapshot::Record;
use ringfence_core::{
    Acquire, ClusterId, ClusterTime, Command, Entry, Form, HolderData, Identity, LeaseName, Millis,
    Open, OpenId, Outcome, Secret, Settings, StateMachine, WallTime,
};

const SESSIONS: u64 = 100_000;

/// The system's allocator with two counters.
struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);
static BLOCKS: AtomicI64 = AtomicI64::new(0);

fn count(layout: Layout, sign: i64) {
    BYTES.fetch_add(sign * layout.size() as i64, Relaxed);
    BLOCKS.fetch_add(sign, Relaxed);
}

#[allow(
    unsafe_code,
    reason = "counting what is allocated needs an allocator of one's own"
)]
// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn entry(index: u64, command: Command) -> Entry {
    Entry {
        index,
        term: 1,
        time: ClusterTime(index / 20),
        wall: WallTime(0),
        command,
    }
}

/// Spreads numbers over the whole range, as random ids are.
fn scattered(n: u64) -> u64 {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn open(n: u64, scatter: bool) -> Open {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&scattered(n).to_be_bytes());
    let name = if scatter { scattered(n) >> 28 } else { n };
    Open {
        id: OpenId::new(id),
        secret: Secret::new(id),
        seen: None,
        ttl: Millis(15_000),
        identity: Identity::parse(&format!("worker-{n:08}")).unwrap(),
        acquire: Some(Acquire {
            name: LeaseName::parse(&format!("jobs/{name:010}")).unwrap(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    }
}

fn measure(what: &str, make: impl FnOnce() -> StateMachine) -> StateMachine {
    let before = (BYTES.load(Relaxed), BLOCKS.load(Relaxed));
    let machine = make();
    let each = |now: i64, before: i64| (now - before) as f64 / SESSIONS as f64;
    let bytes = each(BYTES.load(Relaxed), before.0);
    let blocks = each(BLOCKS.load(Relaxed), before.1);
    println!("{what:<32} {bytes:>6.0} bytes in {blocks:.1} blocks per session and lease");
    machine
}

fn applied(scatter: bool) -> StateMachine {
    let mut machine = StateMachine::new();
    let mut events = Vec::new();
    let form = Form {
        cluster: ClusterId::new([1; 16]),
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode: ringfence_core::Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    };
    let opening = [
        Command::TermStart { unix_seconds: None },
        Command::Form(form),
    ];
    for (index, command) in (1..).zip(opening) {
        machine.apply(&entry(index, command), &mut events);
    }
    for n in 0..SESSIONS {
        let outcome = machine.apply(&entry(3 + n, Command::Open(open(n, scatter))), &mut events);
        assert!(matches!(outcome, Outcome::Opened(_)), "{outcome:?}");
        events.clear();
    }
    drop(events);
    assert_eq!(machine.summary().held, SESSIONS);
    machine
}

fn main() {
    drop(measure("names in order", || applied(false)));
    let machine = measure("names in any order", || applied(true));
    let records: Vec<Record> = machine.records().collect();
    drop(machine);
    // What was decoded shares nothing, unlike the records of a state at hand.
    let fresh = records.iter().map(unshared);
    drop(measure("restored", || {
        StateMachine::restore(fresh).unwrap()
    }));
}

fn unshared(record: &Record) -> Record {
    use ringfence_core::snapshot::Answer;
    let mut record = record.clone();
    let name = |name: &LeaseName| LeaseName::parse(name.as_str()).unwrap();
    match &mut record {
        Record::Lease(lease) => lease.name = name(&lease.name),
        Record::Session(session) => {
            session.identity = Identity::parse(session.identity.as_str()).unwrap();
            for known in &mut session.answers {
                if let Answer::Granted { name: granted, .. } = &mut known.answer {
                    *granted = name(granted);
                }
            }
        }
        Record::Header(_)
        | Record::Ended(_)
        | Record::Access(_)
        | Record::Audit(_)
        | Record::Object(_)
        | Record::GoneObject(_)
        | Record::Owing(_) => {}
    }
    record
}
