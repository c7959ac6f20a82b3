//! Runs one scenario from one seed.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, RngSeed, UnhandledPanic};

use crate::listener::Listener;
use crate::machine::Machine;
use crate::net::Counts;
use crate::trace::Trace;
use crate::world::{Setup, World};

/// What came out of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<T> {
    /// What the scenario returned.
    pub value: T,
    /// How much time was simulated.
    pub simulated: Duration,
    /// A number over the whole trace.
    pub hash: u64,
    /// The trace, or its newest lines.
    pub trace: String,
    /// Figures about the network.
    pub net: Counts,
    /// How often any task on any machine was let run.
    pub turns: u64,
}

/// Runs `scenario` in a world of its own. Equal seeds, setups and scenarios make equal runs.
///
/// # Panics
/// If any task of the run does.
pub fn run<T, F, R>(
    seed: u64,
    setup: Setup,
    listener: Arc<dyn Listener>,
    trace: Trace,
    scenario: F,
) -> Report<T>
where
    F: FnOnce(World) -> R,
    R: Future<Output = T>,
{
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .unhandled_panic(UnhandledPanic::ShutdownRuntime)
        .build()
        .expect("a runtime without input and output needs nothing");
    runtime.block_on(async {
        let world = World::new(seed, setup, listener, trace.clone());
        let value = scenario(world.clone()).await;
        let simulated = world.now();
        let net = world.net().counts();
        let turns = world.machines().iter().map(Machine::turns).sum();
        world.end();
        Report {
            value,
            simulated,
            hash: trace.hash(),
            trace: trace.text(),
            net,
            turns,
        }
    })
}
