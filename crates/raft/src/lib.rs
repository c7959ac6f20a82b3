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

mod awake;
mod beginning;
mod clock;
mod codec;
mod config;
mod data_dir;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
mod entry_size;
mod events;
mod files;
mod forming;
mod freshness;
#[cfg(test)]
mod golden;
mod hello;
mod history;
mod hooks;
mod identity;
mod incarnation;
mod inner;
mod keepalive;
mod leading;
mod level;
mod log_store;
#[cfg(test)]
mod log_suite;
mod members;
mod metrics;
mod network;
mod node;
#[doc(hidden)]
pub mod place;
mod proposal;
mod propose;
mod reading;
mod receive;
mod reply;
mod ring;
mod runtime;
mod seat;
mod snapshot_error;
mod snapshot_file;
mod snapshot_frames;
#[cfg(test)]
mod snapshot_suite;
mod start;
mod state;
mod status;
mod stop;
mod stored_log;
mod twin;
mod type_config;
mod waiters;
mod write;

pub use config::{FLUSH_LAG_MAX, LOG_UNFLUSHED_BYTES_MAX, NodeConfig, PeerTls, Timing};
pub use data_dir::{Unexpected, unexpected_files};
pub use entry_size::{ENTRY_BYTES_MAX, WAL_SEGMENT_BYTES_MAX, WAL_SEGMENT_BYTES_MIN};
pub use events::{Batch, Compacted, EVENTS_BYTES_KEPT, EVENTS_KEPT, EventFeed, Position};
#[doc(hidden)]
pub use hooks::{Hooks, Observer};
pub use identity::IdentityError;
pub use incarnation::Incarnation;
pub use keepalive::{
    KEEP_ALIVES_FORWARDED_MAX, KEEP_ALIVES_QUEUED_MAX, KeepAlive, KeepAliveSource, KeptAlive,
    SESSIONS_PER_RENEW_MAX,
};
pub use leading::{
    LOG_UNCOMMITTED_BYTES_MAX, LOG_UNCOMMITTED_BYTES_MIN, LOG_UNCOMMITTED_ENTRIES_MAX,
};
pub use members::{
    ADDRESS_BYTES_MAX, Member, MembershipError, NAME_BYTES_MAX, NotReady, Standing, Voters,
};
pub use metrics::NodeMetrics;
pub use network::{PEER_CONNECTIONS_MAX, listen};
pub use node::Node;
pub use propose::PROPOSALS_QUEUED_MAX;
pub use reading::Known;
pub use reply::{Applied, LeaderHint, ProposeError};
pub use ringfence_history::{
    HISTORY_RECORDS_MAX, HistoryAnswer, HistoryEnd, HistoryError, HistoryFigures, HistoryLimits,
    HistoryQuery, HistoryRecord, HistoryState,
};
#[doc(hidden)]
pub use runtime::spawn;
pub use seat::SeatError;
pub use snapshot_error::SnapshotError;
pub use start::StartError;
pub use status::{Role, Status};
pub use stop::StopReason;
pub use stored_log::{LogReadError, StoredEntry, StoredLog, read_log};
pub use waiters::{WaitDone, Waiter, WaiterKey};
