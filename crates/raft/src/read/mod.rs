//! Reads of the local state, and how old it may be.
//!
//! [`reading`] makes local state current: it asks the leader for an index that a majority has
//! confirmed, and waits until that index is applied here. [`freshness`] keeps the published status and
//! the age of local state up to date; [`silence`] says for how long no majority was heard of.

pub(crate) mod freshness;
pub(crate) mod reading;
pub(crate) mod silence;
