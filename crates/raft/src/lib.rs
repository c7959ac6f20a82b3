//! The driver of Ringfence: it makes one replicated state machine out of several processes.
//!
//! ```text
//!  submit ─▶ pump ─▶ openraft ─▶ log (wal) ──▶ peers        decides nothing itself: every
//!    ▲        │         │                                   answer is the core's
//!    │     forwarder    ▼
//!  reply ◀──────────  state (core) ─▶ events, waiters, history, snapshots
//! ```
//!
//! A [`Node`] is all that the server sees. Only this crate knows openraft, and none of its types
//! leave it. Time is read in one module, `clock`.

mod clock;
mod codec;
mod config;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
mod events;
mod files;
mod forming;
mod forward;
#[cfg(test)]
mod golden;
mod history;
mod hooks;
mod identity;
mod inner;
mod keepalive;
mod leading;
mod log_store;
#[cfg(test)]
mod log_suite;
mod membership;
mod metrics;
mod network;
mod node;
#[doc(hidden)]
pub mod place;
mod proposal;
mod propose;
mod reading;
mod receive;
mod ring;
mod runtime;
mod seat;
mod snapshot_file;
mod snapshot_frames;
#[cfg(test)]
mod snapshot_suite;
mod start;
mod state;
mod status;
mod stop;
mod stored_log;
mod type_config;
mod waiters;

pub use config::{LOG_UNFLUSHED_BYTES_MAX, NodeConfig, PeerTls, Timing};
pub use events::{Batch, Compacted, EVENTS_BYTES_KEPT, EVENTS_KEPT, EventFeed, Position};
pub use history::{
    HISTORY_RECORDS_MAX, HistoryAnswer, HistoryEnd, HistoryError, HistoryLimits, HistoryQuery,
    HistoryRecord,
};
#[doc(hidden)]
pub use hooks::{Hooks, Observer};
pub use identity::{IdentityError, Incarnation};
pub use keepalive::{KEEP_ALIVES_QUEUED_MAX, KeepAlive, KeptAlive, SESSIONS_PER_RENEW_MAX};
pub use membership::{Member, MembershipError};
pub use metrics::NodeMetrics;
pub use node::Node;
pub use propose::{Applied, LeaderHint, PROPOSALS_QUEUED_MAX, ProposeError};
pub use seat::SeatError;
pub use snapshot_file::SnapshotError;
pub use start::StartError;
pub use status::{Role, Status};
pub use stop::StopReason;
pub use stored_log::{LogReadError, StoredEntry, StoredLog, read_log};
pub use waiters::{WaitDone, Waiter, WaiterKey};
