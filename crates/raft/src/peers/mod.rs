//! The answers to other nodes' calls.
//!
//! [`server`] implements the service of the peer port: it checks who calls, and hands each call to the
//! folder that it is about. [`receive`] serves the stream of forwarded requests where this node leads;
//! [`intake`] lets entries in no faster than the disk takes them. `network` carries the calls and knows
//! nothing of these answers.

mod allowed;
mod intake;
mod join;
pub(crate) mod receive;
pub(crate) mod server;
