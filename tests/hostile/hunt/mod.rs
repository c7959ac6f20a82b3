//! Hunts: hostile clients with a valid and small right, or without any, for as long as wanted, while nodes
//! are killed, stopped and restarted. Each answer that a hostile client gets is judged by the model's
//! rights; afterwards the log is replayed, and the history of the honest is checked.
//!
//! `RINGFENCE_HUNT_SECONDS` says for how long, and `RINGFENCE_HUNT_SEED` with which draws; a run prints
//! its seed. The draws are the same then, and the times are not.

mod bandit;
mod calls;
mod chaos;
mod clients;
mod doors;
mod ends;
mod figures;
mod forger;
mod honest;
mod judge;
mod judge_tests;
mod known;
mod log;
mod messages;
mod peer;
mod raid;
mod siege;
mod stage;

use std::time::Duration;

/// How long a hunt lasts unless `RINGFENCE_HUNT_SECONDS` says another time.
const SECONDS: u64 = 20;
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value:?} is no number")),
    )
}

fn time() -> Duration {
    Duration::from_secs(variable("RINGFENCE_HUNT_SECONDS").unwrap_or(SECONDS))
}

fn seed() -> u64 {
    let seed = variable("RINGFENCE_HUNT_SEED").unwrap_or_else(rand::random);
    println!("seed: RINGFENCE_HUNT_SEED={seed}");
    seed
}
