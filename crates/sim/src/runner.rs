//! Runs one scenario from one seed.

use std::cell::RefCell;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::{Builder, RngSeed};

use crate::listener::Listener;
use crate::machine::Machine;
use crate::net::Counts;
use crate::setup::Setup;
use crate::trace::Trace;
use crate::world::World;

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

/// How often a run looks whether one of its tasks has panicked, in its own time.
const LOOK: Duration = Duration::from_millis(200);

thread_local! {
    /// The first panic of this thread's run. Others follow it: of those who waited for the task.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether panics are reported by the code that runs the seeds, and not by the process at once.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves it to the caller of [`run`] to tell of panics.
pub(crate) fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// What the first panic on this thread since the last call said.
pub(crate) fn take_panic() -> Option<String> {
    PANICKED.take()
}

fn note_panics() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICKED.with_borrow_mut(|first| {
                first.get_or_insert_with(|| panic.to_string());
            });
            if !QUIET.load(Ordering::Relaxed) {
                before(panic);
            }
        }));
    });
}

async fn panicked() {
    while PANICKED.with_borrow(Option::is_none) {
        tokio::time::sleep(LOOK).await;
    }
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
    note_panics();
    take_panic();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .build()
        .expect("a runtime without input and output needs nothing");
    let report = runtime.block_on(async {
        let world = World::new(seed, setup, listener, trace.clone());
        // The runtime would shut down in the middle of a task, and tasks that are dropped there
        // cannot wake others.
        let value = tokio::select! {
            biased;
            () = panicked() => None,
            value = scenario(world.clone()) => Some(value),
        };
        let simulated = world.now();
        let net = world.net().counts();
        let turns = world.machines().iter().map(Machine::turns).sum();
        world.end();
        value.map(|value| Report {
            value,
            simulated,
            hash: trace.hash(),
            trace: trace.text(),
            net,
            turns,
        })
    });
    drop(runtime);
    match report {
        Some(report) if PANICKED.with_borrow(Option::is_none) => report,
        _ => panic!(
            "a task of the run panicked: {}",
            PANICKED.with_borrow(|first| first.clone().unwrap_or_default())
        ),
    }
}
