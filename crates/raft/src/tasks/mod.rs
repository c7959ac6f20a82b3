//! The tasks that run beside Raft for as long as a node is a member.
//!
//! [`snapshots`] takes a snapshot whenever the log has grown enough, [`history`] fetches history that an
//! installed snapshot skipped, and [`seek`] gets a learner its vote. [`raft_end`], [`removal`], [`twin`],
//! [`superseded`] and [`open_port`] stop the node: when Raft has ended, when the node is no longer a
//! member, when a second process runs under its identity, when a restored cluster goes on in the place
//! of its own, and when rights are enforced and its peer port is open. Each waits, looks and acts in a loop of its own and
//! ends with the node.

pub(crate) mod history;
pub(crate) mod open_port;
pub(crate) mod raft_end;
pub(crate) mod removal;
pub(crate) mod seek;
pub(crate) mod snapshots;
pub(crate) mod superseded;
pub(crate) mod twin;
