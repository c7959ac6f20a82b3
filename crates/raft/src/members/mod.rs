//! The members of the cluster, and how they change.
//!
//! ```text
//!  caller ──wish──▶ change ──▶ leader's Reconciler ──▶ plan ──▶ one step ──▶ openraft
//!  seek (a learner) ─┘              ▲                             │
//!                                   └──── finishes what is joint ─┘
//! ```
//!
//! The [`reconciler::Reconciler`] of the leader's term is the only one that changes the members.
//! Callers hand it a wish and wait for the outcome. They may go away at any time: what has begun is
//! finished by this leader, or by the next one.

mod change;
mod error;
mod flush;
mod half;
pub(crate) mod hand_over;
pub(crate) mod ids;
pub(crate) mod list;
mod node;
mod plan;
pub(crate) mod reconciler;
pub(crate) mod seek;
mod standing;
pub(crate) mod term;
mod view;
pub(crate) mod wish;

pub(crate) use change::{answer_join, change, change_as_leader};
pub use error::MembershipError;
pub(crate) use error::failure_to_pb;
pub use list::Member;
pub(crate) use list::leader_peer_address;
pub use standing::{NotReady, Standing, Voters};
pub use wish::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};
