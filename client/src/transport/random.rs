//! Where this crate's chance comes from: jitter, secrets, the first member to try.
//!
//! One place, so that a simulation can hand out its own.

use rand::Rng;

/// The source of chance.
#[cfg(not(feature = "sim"))]
pub(crate) fn rng() -> impl Rng {
    rand::rng()
}

/// The source of chance: the simulated host's, on one.
#[cfg(feature = "sim")]
pub(crate) fn rng() -> impl Rng {
    crate::sim::HostRng
}
