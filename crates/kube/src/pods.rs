//! Pods that sessions are bound to: watched by the leader, which has the sessions of a Pod ended once
//! it has seen the Pod's end.
//!
//! ```text
//!  session, bound to Pod a (uid 1)        Pod a deleted; its name is taken by Pod a (uid 2)
//!        │                                        │ watch
//!        └───── state ──▶ Watcher ◀───────────────┘
//!                           │ reads Pod a once more: its UID is another one
//!                           └──▶ entry: PodEnded { uid 1, gone }
//! ```
//!
//! - **A watch only says where to look.** What is concluded stands in the answer to a read that the
//!   API server takes from its store, so neither a late watch nor a cache that lags ends anything.
//! - **An API server that does not answer, or refuses, ends nothing.** A Pod is gone when the API
//!   server says by name that it is not found, or shows another UID.
//! - **Not being ready ends nothing,** nor does a node that is cut off, a Pod that is being deleted, or
//!   a phase that is unknown: its processes may live.
//! - **It is level-triggered.** Whatever was missed is found at the next look, at the latest when the
//!   next leader begins with all Pods.

mod figures;
mod look;
mod watcher;
mod watching;

pub use figures::Figures;
pub use watcher::{Bound, Watcher};
