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

mod capability;
mod clock;
mod cluster;
mod crew;
mod faults;
mod judge;
pub mod net;
pub mod plan;
pub mod record;
pub mod report;
mod roles;
mod run;
pub mod schedule;
mod scratch;
mod stage;
mod sys;
mod tally;
pub mod workload;

pub use capability::Ground;
pub use plan::{Kind, Plan, Target};
pub use run::{RunError, Say, run};
pub use scratch::sweep;
