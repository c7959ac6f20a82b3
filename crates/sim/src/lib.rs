//! The whole cluster in one thread and in virtual time, from one seed.
//!
//! The nodes are the real ones: openraft, the log over a simulated disk, the cluster clock, the
//! batcher of keep-alives, the calls between nodes down to their encoded frames. Their clients use
//! the client crate, and are served by `ringfence_services`, as by the binary. Only the outside is
//! simulated: time, disks, the network, and chance. Nothing here ever ships.
//!
//! # The engine
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use ringfence_sim::{listener::Deaf, node::Crash, runner, setup::Setup, trace::Trace};
//!
//! let report = runner::run(7, Setup::default(), Arc::new(Deaf), Trace::new(true), |world| async move {
//!     let leader = world.form().await;
//!     world.node(leader).crash(Crash::Torn);
//!     world.leader_within(Duration::from_secs(10)).await
//! });
//! assert!(report.value.is_some(), "{}", report.trace);
//! ```
//!
//! - [`runner::run`] makes a world, runs a scenario in it, and reports; [`campaign`] does so for
//!   many seeds, each with [`play::scenario`].
//! - [`world::World`] has the nodes, all other machines, the network, the simulation's own time, and
//!   sources of chance, each for one purpose.
//! - [`node::SimNode`] starts, stops, crashes, wipes and sets back one node.
//! - [`machine::Machine`] pauses, and has clocks, a disk, and a process: tasks that are spawned on it
//!   see its clocks, stand still while it is paused, and end with the process. Every client has one
//!   of its own.
//! - [`net::Net`] cuts links one way, delays and loses packets. [`world::World::call`] is one call to
//!   a node, [`net::Net::connect`] a connection with pipes for callers that want streams.
//! - [`disk::Disk`] is slow, stalls, fails, fills up, keeps copies.
//! - [`listener::Listener`] is notified of every applied entry and of every change of leadership.
//!
//! Chance comes from [`random::Random`] alone, forked by purpose, and nothing that decides iterates
//! in an order that differs between processes: equal seeds make equal traces.

pub mod callers;
pub mod campaign;
pub mod census;
pub mod checked;
pub mod client;
pub mod clock;
pub mod disk;
pub mod faults;
pub mod guards;
pub mod listener;
mod lock;
pub mod machine;
pub mod net;
pub mod node;
pub mod observe;
pub mod plan;
pub mod play;
pub mod properties;
pub mod random;
pub mod runner;
pub mod setup;
mod timeline;
pub mod trace;
pub mod workload;
pub mod world;
