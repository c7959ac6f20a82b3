//! How fast entries are applied, and how long the longest one takes in a storm of ends.
//!
//! `cargo bench -p ringfence-core`. Prints one line per figure.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock"
)]

mod world;

use std::time::{Duration, Instant};

use ringfence_core::{Ask, Command, FencingToken, LeaseName, Millis, Outcome, Renew, SessionId};

use crate::world::{World, acquire, ask};

fn cycles(sessions: u64, rounds: u64) {
    let mut world = World::new();
    let ids: Vec<SessionId> = (0..sessions).map(|n| world.open(n)).collect();
    let names: Vec<LeaseName> = (0..sessions)
        .map(|n| LeaseName::parse(&format!("bench/lease-{n}")).unwrap())
        .collect();
    let start = Instant::now();
    for round in 0..rounds {
        for (session, name) in ids.iter().zip(&names) {
            let outcome = world.apply(ask(*session, 2 * round + 1, acquire(name, None)));
            assert!(matches!(outcome, Outcome::Acquired(_)), "{outcome:?}");
            let token = FencingToken::new(world.machine.summary().last_token).unwrap();
            let release = Ask::Release {
                name: name.clone(),
                token,
                close: false,
            };
            world.apply(ask(*session, 2 * round + 2, release));
        }
    }
    let took = start.elapsed();
    let commands = 2 * sessions * rounds;
    let per_second = commands as f64 / took.as_secs_f64();
    println!("acquire+release, {sessions:>7} sessions: {per_second:>12.0} commands/s");
}

/// Applies ticks until nothing is due; says how many and the longest.
fn drain(world: &mut World) -> (u32, Duration) {
    let (mut ticks, mut longest) = (0, Duration::ZERO);
    while world
        .machine
        .next_deadline()
        .is_some_and(|at| at.0 <= world.time)
    {
        let start = Instant::now();
        world.apply(Command::Tick);
        longest = longest.max(start.elapsed());
        ticks += 1;
    }
    (ticks, longest)
}

fn storm(sessions: u64, leases_each: u64, what: &str) {
    let mut world = World::new();
    for n in 0..sessions {
        let id = world.open(n);
        for lease in 0..leases_each {
            let name = LeaseName::parse(&format!("storm/{n}/{lease}")).unwrap();
            world.apply(ask(id, lease + 1, acquire(&name, None)));
        }
    }
    let heir = world.open(u64::MAX);
    world.apply(Command::Renew(Renew {
        sessions: vec![heir],
        acknowledged: Vec::new(),
    }));
    for lease in 0..leases_each.min(250) {
        let name = LeaseName::parse(&format!("storm/0/{lease}")).unwrap();
        let wait = Some(Millis(3_600_000));
        world.apply(ask(heir, lease + 1, acquire(&name, wait)));
    }
    world.time = 14_999;
    world.apply(Command::Renew(Renew {
        sessions: vec![heir],
        acknowledged: Vec::new(),
    }));
    world.time = 15_001;
    let (ticks, longest) = drain(&mut world);
    println!(
        "{what}: {ticks} entries, longest {:.2} ms",
        longest.as_secs_f64() * 1e3
    );
    assert_eq!(world.machine.summary().sessions, 1);
}

fn renewals(sessions: u64) {
    let mut world = World::new();
    let ids: Vec<SessionId> = (0..sessions).map(|n| world.open(n)).collect();
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    for (batch, part) in ids.chunks(10_000).enumerate() {
        world.time = 50 * batch as u64;
        let renew = Renew {
            sessions: part.to_vec(),
            acknowledged: Vec::new(),
        };
        let one = Instant::now();
        world.apply(Command::Renew(renew));
        longest = longest.max(one.elapsed());
    }
    let took = start.elapsed();
    println!(
        "renew {sessions} sessions in batches of 10,000: {:.0} ns each, longest batch {:.2} ms",
        took.as_nanos() as f64 / sessions as f64,
        longest.as_secs_f64() * 1e3,
    );
}

/// How long a state is held up by being read out, and how long the longest batch of keep-alives
/// takes meanwhile.
fn read_out(sessions: u64) {
    let mut world = World::new();
    let ids: Vec<SessionId> = (0..sessions).map(|n| world.open(n)).collect();
    for (n, id) in ids.iter().enumerate() {
        let name = LeaseName::parse(&format!("bench/lease-{n}")).unwrap();
        world.apply(ask(*id, 1, acquire(&name, None)));
    }
    let start = Instant::now();
    let frozen = world.machine.freeze();
    let freezing = start.elapsed();
    let reader = std::thread::spawn(move || (frozen.records().count(), start.elapsed()).1);
    let mut longest = Duration::ZERO;
    for part in ids.chunks(10_000).cycle() {
        world.time += 1;
        let renew = Renew {
            sessions: part.to_vec(),
            acknowledged: Vec::new(),
        };
        let one = Instant::now();
        world.apply(Command::Renew(renew));
        longest = longest.max(one.elapsed());
        if reader.is_finished() {
            break;
        }
    }
    println!(
        "freeze {sessions} sessions with a lease each: {:.0} us, read out in {:.0} ms, \
         longest batch of 10,000 keep-alives meanwhile {:.2} ms",
        freezing.as_secs_f64() * 1e6,
        reader.join().unwrap().as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3,
    );
}

fn main() {
    cycles(1, 1_000_000);
    cycles(1_000, 1_000);
    cycles(100_000, 10);
    renewals(1_000_000);
    read_out(1_000_000);
    storm(100_000, 1, "100,000 sessions with a lease each end at once");
    storm(1, 4_096, "one session with 4,096 leases ends");
}
