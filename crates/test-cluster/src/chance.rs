//! Random numbers from the seed of a world.
//!
//! Each stream, connection and process has a source of its own: tasks that wake at the same moment
//! may run in either order, and then draw the same numbers all the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of random numbers: `SplitMix64`.
pub(crate) struct Chance(AtomicU64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn draw(&self) -> u64 {
        let step = 0x9E37_79B9_7F4A_7C15_u64;
        let state = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// 1 ms to this long.
    pub(crate) fn time(&self, max_ms: u64) -> Duration {
        Duration::from_millis(1 + self.below(max_ms))
    }

    /// A source of its own.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.draw())
    }
}
