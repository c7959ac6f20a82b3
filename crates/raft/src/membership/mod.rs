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

pub(crate) mod error;
pub(crate) mod list;
pub(crate) mod plan;
pub(crate) mod standing;
pub(crate) mod term;
pub(crate) mod view;
pub(crate) mod wish;

pub use error::MembershipError;
pub use list::Member;
pub use standing::{NotReady, Standing, Voters};
pub use wish::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};
