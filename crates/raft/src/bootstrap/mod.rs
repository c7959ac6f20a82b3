//! The way of a node into a cluster.
//!
//! [`forming`] looks for a cluster to form or to join, and answers other nodes that do; [`seat`] fixes
//! the identity, opens the log and starts Raft, for the first time or again; [`beginning`] tells whether
//! the log of a new cluster will ever begin; [`restoring`] whether first members may restore one.

pub(crate) mod beginning;
pub(crate) mod forming;
pub(crate) mod restoring;
pub(crate) mod seat;
