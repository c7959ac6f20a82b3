//! Bugs that can be switched on, each at the place where an author would really have made it.
//!
//! A test that never failed has shown nothing. `cargo xtask planted` builds everything with the
//! feature `planted`, switches one bug on at a time, and requires that tests which know nothing of
//! it fail. A branch that would distort its place is a patch in `patches`, which that command applies
//! while it builds. In every other build [`planted`] is a constant `false`: the compiler takes the branch
//! away, and not even the names stay.
#![no_std]

#[cfg(feature = "planted")]
extern crate std;

mod list;

pub use list::Bug;

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("bugs are planted in test builds only: this one is without debug assertions");

/// The variable that names the bug to switch on.
pub const VARIABLE: &str = "RINGFENCE_PLANTED";

/// Whether this bug is switched on: never, in a build without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn planted(_: Bug) -> bool {
    false
}

/// Whether this bug is switched on, in this process and for its whole life.
///
/// # Panics
/// If the variable names a bug that there is not: a typing error must not pass for a bug that was
/// caught.
#[cfg(feature = "planted")]
#[must_use]
pub fn planted(bug: Bug) -> bool {
    static ON: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let named = || {
        let name = std::env::var(VARIABLE)
            .ok()
            .filter(|name| !name.is_empty())?;
        let known = Bug::ALL.iter().find(|bug| bug.name() == name);
        Some(*known.unwrap_or_else(|| panic!("{VARIABLE} names no bug: {name}")))
    };
    *ON.get_or_init(named) == Some(bug)
}
