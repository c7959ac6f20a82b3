//! What a node consists of, for everything that works on behalf of the whole node.
//!
//! [`inner::Inner`] holds one of each part from the folders below; [`inner::Running`] is what it has in
//! addition once it belongs to a cluster. The folders above (`read`, `tasks`, `bootstrap`, `peers`,
//! `node`) are given an `Inner`; those below are given only the parts that they need. [`hello`] asks
//! another node who it is.

pub(crate) mod hello;
pub(crate) mod inner;
