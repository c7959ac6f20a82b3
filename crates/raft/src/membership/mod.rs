//! The members of the cluster, and how they change.
//!
//! ```text
//!  caller ──wish──▶ change ──▶ leader's Reconciler ──▶ plan ──▶ one step ──▶ openraft
//!  seek (a learner) ─┘              ▲                             │
//!                                   └──── finishes what is joint ─┘
//! ```
//!
//! [`wish`] is a change that a caller asks for, [`view`] what the leader sees of the members at one
//! moment, and [`plan`] the next step from both; none of them waits or writes. [`term`] is what the
//! leader of one term keeps about the members, [`list`] and [`standing`] are what a node shows of them.
//!
//! The reconciler in `leader` is the only one that changes the members: it works through the wishes of
//! its term, which `requests::change` hands to it. Callers may go away at any time: what has begun is
//! finished by this leader, or by the next one.

pub(crate) mod error;
pub(crate) mod list;
pub(crate) mod plan;
pub(crate) mod standing;
pub(crate) mod term;
pub(crate) mod view;
pub(crate) mod wish;

use std::sync::Arc;

use openraft::async_runtime::WatchReceiver;

pub use error::MembershipError;
pub use list::Member;
pub use standing::{NotReady, Standing, Voters};
pub use wish::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};

use crate::store::state::Raft;
use crate::types::type_config::StoredMembership;

/// The newest membership that this node knows, committed or not.
pub(crate) fn newest(raft: &Raft) -> Arc<StoredMembership> {
    let metrics = raft.server_metrics();
    metrics.borrow_watched().membership_config.clone()
}
