//! The way of a request from any node to the leader.
//!
//! Each kind has a module that looks at the route, serves the request where this node leads, forwards
//! it where another one does, and waits for a while where none does: commands in [`propose`],
//! keep-alives in [`keepalive`], changes of the members in [`change`]. (Reads, which need the applied
//! state too, stand in `read`.) A request that failed without a trace is retried here; one whose
//! outcome is unknown never is.

pub(crate) mod change;
pub(crate) mod keepalive;
pub(crate) mod propose;
