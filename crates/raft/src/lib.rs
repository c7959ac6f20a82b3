//! The driver of Ringfence: it makes one replicated state machine out of several processes.
//!
//! A [`Node`] is all that the server sees. The driver decides nothing about sessions and leases:
//! every answer is that of the state machine in `ringfence-core`. Only this crate knows openraft, and
//! none of its types leave it. Time is read in one module, `platform::clock`.
//!
//! # Map
//!
//! A folder names only folders below it. Its `mod.rs` says what its files are for.
//!
//! ```text
//! node        Node: what the server sees; the start and the end of a node
//! peers       answers to other nodes' calls
//! bootstrap   the way into a cluster: forming, joining, the seat
//! tasks       what runs beside Raft while the node is a member
//! read        linearizable reads; the age of local state
//! shared      what a node consists of
//! requests    commands, keep-alives and changes of members on their way to the leader
//! leader      who leads, and what the leader does in its term
//! membership  the members, and the next step of a change
//! network     calls between nodes: the client, the port, the stream of forwarded calls
//! store       identity, log, snapshots, applied state, events
//! config      what a node is started with
//! spans       what traces show of calls: the parts of each, and what takes them
//! types       values that all folders share, and their bytes
//! platform    clocks, files, tasks, random numbers; the machine or a simulation of it
//! ```
//!
//! A command passes through these files, in this order:
//!
//! ```text
//! Node::submit         node/mod.rs
//!   Dispatcher         requests/propose.rs        looks at the route
//!   ├─ this node leads
//!   │  LeaderTerm      leader/term.rs             admits the command, stamps it with cluster time
//!   │  openraft        store/log_store            log on disk, here and by way of network/client.rs
//!   │  State           store/state                applies it, once a majority has it on disk
//!   │  Reply           types/reply.rs             calls the submitter back
//!   └─ another node leads
//!      Forwarder       network/forward.rs         sends it there once, on one stream
//!      serve_calls     peers/receive.rs           at the leader, into its Dispatcher
//! ```
//!
//! # What the embedder does
//!
//! The program around a [`Node`] has these obligations:
//!
//! 1. Start the node and keep it. Forming or joining a cluster goes on in the background, so the
//!    program MUST NOT wait for the cluster before it starts the other nodes.
//! 2. Submit commands on any node. [`ProposeError::NotDone`] is certain to have no effect; retry it.
//!    After [`ProposeError::Unknown`] the command may have been applied or may yet be: retry it only
//!    under the same request number, whose effect happens once.
//! 3. Register a waiter BEFORE the command that may queue, since it sees only what is applied after.
//! 4. Call [`Node::read_barrier`] BEFORE a read that must see everything acknowledged so far.
//! 5. Follow the events by position. After [`Compacted`] read the state and go on at its position.
//! 6. End when [`Node::stopped`] resolves: the node has ended, and its [`StopReason`] says what an
//!    operator must do before the next start.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ringfence_core::{Command, RequestNumber, SessionId};
//! use ringfence_raft::{EVENTS_KEPT, Node, NodeConfig, Position, StopReason};
//!
//! # fn answer(_: Result<ringfence_raft::Applied, ringfence_raft::ProposeError>) {}
//! # fn answer_turn(_: ringfence_raft::WaitDone) {}
//! # fn show(_: &[(Position, ringfence_core::Event)]) {}
//! # fn restart_watchers(_: &ringfence_core::Frozen) {}
//! # async fn next_request() -> (SessionId, RequestNumber, Command) { std::future::pending().await }
//! # async fn run() -> Result<StopReason, ringfence_raft::StartError> {
//! let mut config = NodeConfig::new("n1", "/var/lib/ringfence");
//! config.peer_listen = ([127, 0, 0, 1], 7421).into();
//! config.initial_cluster = vec![("n1".into(), "127.0.0.1:7421".into())];
//! let node = Node::start(config).await?;
//!
//! let mut events = node.events();
//! let mut seen = events.head();
//! loop {
//!     tokio::select! {
//!         // A request of a client: its outcome comes by callback, its turn in a queue by waiter.
//!         (session, number, command) = next_request() => {
//!             let waiter = node.waiter(session, number);
//!             node.submit(command, answer);
//!             tokio::spawn(async move { answer_turn(waiter.await) });
//!         }
//!         // Something was applied: pass the events on to watchers.
//!         () = events.changed() => match events.since(seen, EVENTS_KEPT) {
//!             Ok(batch) => {
//!                 show(&batch.events);
//!                 seen = batch.upto;
//!             }
//!             Err(_compacted) => {
//!                 let state = node.frozen();
//!                 restart_watchers(&state);
//!                 seen = Position::end_of(state.index());
//!             }
//!         },
//!         // A read that must be current.
//!         () = tokio::time::sleep(Duration::from_secs(10)) => {
//!             if node.read_barrier().await.is_ok() {
//!                 println!("cluster time is {}", node.read(|state| state.time()));
//!             }
//!         }
//!         why = node.stopped() => return Ok(why),
//!     }
//! }
//! # }
//! ```

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
mod spans;
mod store;
mod tasks;
#[cfg(any(test, fuzzing))]
mod tests;
mod types;

pub use bootstrap::seat::SeatError;
pub use config::{FLUSH_LAG_MAX, LOG_UNFLUSHED_BYTES_MAX, NodeConfig, PeerTls, Restore, Timing};
pub use leader::term::{
    LOG_UNCOMMITTED_BYTES_MAX, LOG_UNCOMMITTED_BYTES_MIN, LOG_UNCOMMITTED_ENTRIES_MAX,
    OPERATIONS_WITHOUT_ROOM_MAX,
};
pub use membership::{
    ADDRESS_BYTES_MAX, Member, MembershipError, NAME_BYTES_MAX, NotReady, Standing, Voters,
};
pub use network::{Condition, PEER_CONNECTIONS_MAX, listen};
pub use node::Node;
pub use node::metrics::NodeMetrics;
pub use node::start::StartError;
#[doc(hidden)]
pub use platform::clock::since_boot;
#[doc(hidden)]
pub use platform::hooks::{Hooks, Observer};
#[doc(hidden)]
pub use platform::place;
#[doc(hidden)]
pub use platform::runtime::spawn;
pub use read::reading::Known;
pub use read::silence::Silence;
pub use requests::keepalive::{
    Acknowledgement, KEEP_ALIVES_FORWARDED_MAX, KEEP_ALIVES_QUEUED_MAX, KeepAlive, KeepAliveSource,
    KeptAlive, SESSIONS_PER_RENEW_MAX,
};
pub use requests::propose::PROPOSALS_QUEUED_MAX;
pub use ringfence_history::{
    HISTORY_RECORDS_MAX, HistoryAnswer, HistoryEnd, HistoryError, HistoryFigures, HistoryLimits,
    HistoryQuery, HistoryRecord, HistoryState,
};
pub use spans::{
    Entered, OpenSpan, Serving, Sink, Span, SpanIds, SpanKind, SpanValue, Spans, carried, note,
};
pub use store::backup_file::{BACKUP_FRAME_BYTES_MAX, Backup, BackupError, Hashed, write_backup};
pub use store::backup_output::BackupOutput;
pub use store::data_dir::{Unexpected, unexpected_files};
pub use store::events::{Batch, Compacted, EVENTS_BYTES_KEPT, EVENTS_KEPT, EventFeed, Position};
pub use store::identity::{IdentityError, belongs_to};
pub use store::recovery::{RecoverError, Recovered, recover, recovered_state};
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
