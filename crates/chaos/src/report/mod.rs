//! The page that shows a run: history, faults and report in one self-contained file.
//!
//! A [`Timeline`] is fed with what a run left behind, in any order, and writes `timeline.html`. The
//! page asks nothing of any network: its style, its program and its data are in the file, and a
//! policy in its head forbids everything else. It is to show a stranger within a minute why a
//! stale write was refused.
//!
//! Nothing here judges: whether a promise was broken is said by [`Timeline::judged`], and the page
//! only shows where.

mod call;
mod data;
mod frame;
mod gather;
mod grants;
mod guards;
mod hits;
mod offline;
mod page;
mod settle;
mod thin;
mod timeline;

pub use offline::{PageError, write_offline};
pub use page::PAGE_BYTES_MAX;
pub use settle::PageSize;
pub use thin::{LEASES_MAX, OPERATIONS_MAX};
pub use timeline::Timeline;
