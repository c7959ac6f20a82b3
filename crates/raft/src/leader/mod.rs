//! Leadership: who leads, and what the leader does in its term.
//!
//! [`task`] follows who leads and publishes it as a [`term::Route`]. When this node is elected it
//! opens the term and runs the term's three jobs until the term ends: cluster time, the [`level`], and
//! the [`reconciler`], which makes all changes of the members. [`term::LeaderTerm`] is the term as the
//! other modules see it: it admits, stamps and writes proposals. [`hand_over`] gives
//! leadership to another voter.

pub(crate) mod flush;
pub(crate) mod hand_over;
pub(crate) mod ids;
pub(crate) mod level;
pub(crate) mod reconciler;
pub(crate) mod task;
pub(crate) mod term;
