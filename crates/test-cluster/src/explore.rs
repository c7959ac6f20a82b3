//! Many worlds, one after the other, until one shows a mistake.
#![allow(
    unexpected_cfgs,
    reason = "users of this crate may build tokio with its flag `tokio_unstable`, or without"
)]

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Builder;

use crate::world::{TestCluster, message_of};

/// A scenario that takes longer than this, in virtual time, is taken to wait for ever.
pub const SCENARIO_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The first seed whose scenario failed. `Debug` shows the same as `Display`, so that `unwrap`
/// prints the story.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding {
    /// The seed: `explore([seed], scenario)` plays it again.
    pub seed: u64,
    /// What the panic said.
    pub failure: String,
    /// What happened until then; see [`TestCluster::story`].
    pub story: String,
}

/// Plays a scenario in a world of each seed, until it panics in one: in itself, or in a process
/// that it has [spawned](TestCluster::spawn). Each world has a runtime with a paused clock of its
/// own on this thread, so this is no `async` function; call it from a plain `#[test]`.
///
/// Returns how many seeds passed.
///
/// # Errors
/// [`Finding`]: the first seed whose scenario failed, with its story.
///
/// # Panics
/// If it is called within a runtime.
pub fn explore<S, F>(
    seeds: impl IntoIterator<Item = u64>,
    scenario: S,
) -> Result<usize, Box<Finding>>
where
    S: Fn(TestCluster) -> F,
    F: Future<Output = ()>,
{
    let mut passed = 0;
    for seed in seeds {
        play(seed, &scenario)?;
        passed += 1;
    }
    Ok(passed)
}

fn play<F: Future<Output = ()>>(
    seed: u64,
    scenario: impl Fn(TestCluster) -> F,
) -> Result<(), Box<Finding>> {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    // `select!` without `biased` draws from the runtime's random numbers; their seed can be set with
    // this flag only.
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = runtime.build().expect("timers need nothing of the machine");
    runtime.block_on(async {
        let world = TestCluster::with(seed, true);
        let playing = AssertUnwindSafe(scenario(world.clone())).catch_unwind();
        let failure = match tokio::time::timeout(SCENARIO_MAX, playing).await {
            Ok(Ok(())) => world.failure(),
            // What a process said comes before what waiting for it said.
            Ok(Err(panic)) => world.failure().or_else(|| Some(message_of(&*panic))),
            Err(_) => Some(format!("it did not end within {SCENARIO_MAX:?}")),
        };
        let story = world.story();
        world.end();
        match failure {
            None => Ok(()),
            Some(failure) => Err(Box::new(Finding {
                seed,
                failure,
                story,
            })),
        }
    })
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.failure)?;
        f.write_str(&self.story)
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Finding {}
