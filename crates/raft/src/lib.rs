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

mod bootstrap;
mod config;
mod leader;
mod membership;
mod network;
mod node;
mod peers;
mod platform;
mod read;
mod requests;
mod shared;
mod store;
mod tasks;
#[cfg(any(test, fuzzing))]
mod tests;
mod types;

pub use bootstrap::seat::SeatError;
pub use config::{FLUSH_LAG_MAX, LOG_UNFLUSHED_BYTES_MAX, NodeConfig, PeerTls, Timing};
pub use leader::leading::{
    LOG_UNCOMMITTED_BYTES_MAX, LOG_UNCOMMITTED_BYTES_MIN, LOG_UNCOMMITTED_ENTRIES_MAX,
};
pub use membership::{
    ADDRESS_BYTES_MAX, Member, MembershipError, NAME_BYTES_MAX, NotReady, Standing, Voters,
};
pub use network::{PEER_CONNECTIONS_MAX, listen};
pub use node::Node;
pub use node::metrics::NodeMetrics;
pub use node::start::StartError;
#[doc(hidden)]
pub use platform::hooks::{Hooks, Observer};
#[doc(hidden)]
pub use platform::place;
pub use read::reading::Known;
pub use requests::keepalive::{
    KEEP_ALIVES_FORWARDED_MAX, KEEP_ALIVES_QUEUED_MAX, KeepAlive, KeepAliveSource, KeptAlive,
    SESSIONS_PER_RENEW_MAX,
};
pub use requests::propose::PROPOSALS_QUEUED_MAX;
pub use ringfence_history::{
    HISTORY_RECORDS_MAX, HistoryAnswer, HistoryEnd, HistoryError, HistoryFigures, HistoryLimits,
    HistoryQuery, HistoryRecord, HistoryState,
};
pub use store::data_dir::{Unexpected, unexpected_files};
pub use store::events::{Batch, Compacted, EVENTS_BYTES_KEPT, EVENTS_KEPT, EventFeed, Position};
pub use store::identity::IdentityError;
pub use store::snapshot_error::SnapshotError;
pub use store::stored_log::{LogReadError, StoredEntry, StoredLog, read_log};
pub use store::waiters::{WaitDone, Waiter, WaiterKey};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use tests::decoders;
pub use types::entry_size::{ENTRY_BYTES_MAX, WAL_SEGMENT_BYTES_MAX, WAL_SEGMENT_BYTES_MIN};
pub use types::incarnation::Incarnation;
pub use types::reply::{Applied, LeaderHint, ProposeError};
pub use types::status::{Role, Status};
pub use types::stop::StopReason;
