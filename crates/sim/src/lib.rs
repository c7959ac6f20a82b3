//! The whole cluster in one thread and in virtual time, from one seed.
//!
//! The nodes are the real ones: openraft, the log over a simulated disk, the cluster clock, the
//! batcher of keep-alives, the calls between nodes down to their encoded frames. Only the outside
//! is simulated: time, disks, the network, and chance. Nothing here ever ships.
//!
//! # The engine
//!
//! ```text
//! let report = runner::run(seed, |world: World| async move {
//!     let nodes = world.form(3).await;              // started, formed, one of them leads
//!     let client = world.machine("c1");             // a machine that runs no node
//!     client.spawn(async move { ... });             // paused, crashed and timed with its machine
//!     world.node(0).crash(Crash::Power);            // lost and torn writes
//!     world.node(0).start().await?;
//! });
//! ```
//!
//! - `World`: `now`, `random(purpose)`, `trace(line)`, `node(i)`, `machine(name)`, `net()`.
//! - `SimNode`: `start`, `stop`, `crash(Crash::{Kill, Power, Torn})`, `wipe`, `keep_copy`,
//!   `roll_back`, `pause`, `resume`, `disk()`, `handle() -> Option<ringfence_raft::Node>`.
//! - `Machine` (every node has one, every client is one): `id`, `clock()` (rate, wall steps),
//!   `pause`, `resume`, `crash`, `spawn(future)`,
//!   `call(to, |node: Node| async { .. }) -> Result<T, Lost>`: runs the closure's future *on* the
//!   node `to`, with the links' delays and losses on the way there and back.
//! - `Net`: `cut(from, to)` one way, `heal(from, to)`, `heal_all`, `freeze(from, to)` half-open,
//!   `shape(from, to, Weather { delay, jitter, loss_per_mille, double_per_mille })`.
//! - `Disk`: `stall(for)`, `latency(range)`, `fail_next_write`, `fail_next_sync`, `capacity(bytes)`.
//! - [`listener::Listener`]: told synchronously of every applied entry and of every change of leadership.

pub mod clock;
pub mod disk;
pub mod faults;
pub mod listener;
pub mod machine;
pub mod net;
pub mod node;
pub mod observe;
pub mod properties;
pub mod random;
pub mod runner;
mod timeline;
pub mod trace;
pub mod world;
