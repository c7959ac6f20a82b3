//! A cluster of Ringfence inside a unit test, to prove that a service survives what happens to
//! holders of leases: it is paused, its lease expires, another process takes over, and then it goes
//! on. In virtual time, in one thread, without processes or sockets, and from one seed.
//!
//! A [`TestCluster`] has the real client crate in front, the real state machine behind it, and
//! stores with and without a guard. [`explore()`] plays a scenario from many seeds and prints the
//! first story that ends badly. The README begins with a whole example.
//!
//! # What is real, and what is not
//!
//! | part | here |
//! |---|---|
//! | the client: windows, keep-alives, retries, releases, electors | real: the crate `ringfence-client` |
//! | sessions, leases, queues, tokens, cluster time, who is refused what | real: the state machine of the nodes |
//! | requests and answers | real: decoded and made by the code of the nodes, and never turned into bytes |
//! | the guard of [`GuardedStore`] | real: `ringfence_guard::Guard` |
//! | the network | simulated: latency, order, links that are cut |
//! | replication | left out: one log, of which a new leader lacks nothing |
//! | watches | left out: they find no node |
//! | rights, TLS, limits of connections and of rates | left out |
//! | time, pauses, chance | simulated |
//!
//! # Map
//!
//! `cluster` has the state machine and its leader's clock; `serving` answers frames; `network` carries
//! them; `process` is a client on a host. `store` has the stores, `ledger` what they
//! hold and which writes are stale, `story` what happened; `chance` and `flag` are theirs. `world` puts
//! them together and has the faults, `trouble` draws them, `explore` plays many worlds.

mod chance;
mod cluster;
mod explore;
mod flag;
mod ledger;
mod lock;
mod network;
mod process;
mod serving;
mod store;
mod story;
mod trouble;
mod world;

pub use explore::{Finding, SCENARIO_MAX, explore};
pub use ledger::{Stale, StaleWrite};
pub use process::TestClient;
pub use store::{Guarded, GuardedStore, Unguarded, UnguardedStore};
pub use world::TestCluster;
