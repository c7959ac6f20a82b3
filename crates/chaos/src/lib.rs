//! Partitions for users: a cluster of real processes is cut apart, killed, paused and starved of
//! its disks while real clients work, and then it is judged whether every promise was kept.
//!
//! Each node and each client lives in a network namespace of its own. The other end of its one
//! cable is held by this process, which is the switch between all of them: every packet gets a
//! verdict from the seed. Nothing need be installed, and nothing is left behind: namespaces,
//! cables and mounts exist only as long as the processes that use them, and those end with this
//! one, however it ends.
//!
//! A seed fixes the *schedule* of faults, not what comes of them: that is up to real processes.

// What only the run uses of the modules that are for every system.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

mod clock;
pub mod plan;
mod progress;
pub mod record;
pub mod report;
pub mod schedule;
pub mod workload;

// The run and what it stands on need Linux. `elsewhere` has the same functions, which say so.
#[cfg(target_os = "linux")]
mod capability;
#[cfg(target_os = "linux")]
mod cluster;
#[cfg(target_os = "linux")]
mod crew;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod judge;
#[cfg(target_os = "linux")]
pub mod net;
#[cfg(target_os = "linux")]
mod roles;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod tally;

pub use plan::{Kind, Plan, Target};
pub use progress::{RunError, Say};

#[cfg(target_os = "linux")]
pub use {capability::Ground, run::run, scratch::sweep};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Ground, run, sweep};
