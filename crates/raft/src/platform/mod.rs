//! What a node runs on: clocks, files, tasks and randomness, each behind one seam.
//!
//! The lowest folder. [`place`] lets a simulation stand in for the machine; [`runtime`], [`clock`]
//! and [`files`] ask it before they turn to the operating system, so nothing above has to. [`hooks`]
//! holds what tests replace, and [`awake`] counts the time for which the machine slept.

pub(crate) mod awake;
pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod hooks;
pub mod place;
pub(crate) mod runtime;
