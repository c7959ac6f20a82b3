//! What a node allows one client to ask of it. Limits of the replicated state are settings and
//! stand in `ringfence_core`, limits of single messages in `ringfence_proto::wire`; these here
//! protect the node itself.

use std::time::Duration;

/// The most requests of one stream that are under way; the stream is read again when one of them
/// is answered. Requests that may wait for a lease do not count.
pub(crate) const IN_FLIGHT_PER_STREAM_MAX: usize = 4_096;
/// The most requests of one stream that wait for a lease.
pub(crate) const WAITS_PER_STREAM_MAX: usize = 65_536;
/// A message to a client ends behind the frame with which it passes this size, in bytes.
pub(crate) const REPLY_BYTES_AIM: usize = 256 << 10;
/// The most keep-alive messages of one `Sessions.KeepAlive` stream that are under way.
pub(crate) const KEEP_ALIVES_PER_STREAM_MAX: usize = 64;

/// The most watches, of leases and of floors, that a node serves at a time.
pub(crate) const WATCHERS_MAX: usize = 10_000;
/// The most events that are told in one message of a watch. With names, identities and data at
/// their limits such a message has about 100 KiB, and each watch has a few of them in memory.
pub(crate) const EVENTS_PER_MESSAGE_MAX: usize = 64;
/// A watch's position moves on at least this often.
pub(crate) const WATCH_QUIET_MAX: Duration = Duration::from_millis(700);
/// How many messages of a watch may wait for a slow reader; behind them it falls back in the ring
/// of events, and in the end hears `compacted`.
pub(crate) const WATCH_MESSAGES_MAX: usize = 1;
/// The most leases that all watches of a node together hold in memory while they tell the present
/// state, but for present states of one message. A watch whose prefix has more is the only one to
/// tell at its time.
pub(crate) const WATCH_PRESENT_MAX: u32 = 1_000_000;
/// How long a reader of the present state may let a message wait; then its watch ends, since
/// others may have to wait for the memory.
pub(crate) const WATCH_PRESENT_STALL_MAX: Duration = Duration::from_secs(30);
/// How many leases of the present state a reader has to take in a second: a whole present state
/// may take as long as one message, and a second more for each so many leases. With names,
/// identities and data at their limits this is 8 MB a second.
pub(crate) const WATCH_PRESENT_PACE_MIN: u32 = 5_000;

/// A page of a list ends before it passes this size, in bytes; with the rest of its message it
/// stays below the 4 MiB that gRPC clients take unless told otherwise.
pub(crate) const PAGE_BYTES_MAX: usize = (4 << 20) - (64 << 10);
/// The most leases of one listing that a node keeps so that later pages stand at the same index.
pub(crate) const LISTING_LEASES_MAX: usize = 100_000;
/// The most listings that a node keeps; the oldest goes first.
pub(crate) const LISTINGS_MAX: usize = 16;
/// How long a node keeps a listing of which no further page is asked.
pub(crate) const LISTING_AGE_MAX: Duration = Duration::from_secs(60);

/// How long a node may have heard nothing from the leader and still call itself ready.
pub(crate) const READY_AGE_MAX: Duration = Duration::from_secs(2);

/// The most streams and calls at a time on one connection.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 10_000;
/// The HTTP/2 window of a connection. h2 takes half of it as its budget for small frames that
/// nobody has read yet, and closes the connection behind it; a busy client sends many small ones.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// The HTTP/2 window of a stream.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// How often a silent connection is asked whether it still lives.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long it may take to answer.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// When the caller of a unary call has a deadline, it is answered a tenth of its time earlier, so
/// that the answer still reaches it; at least this much.
pub(crate) const DEADLINE_MARGIN_MIN: Duration = Duration::from_millis(10);
/// And at most this much.
pub(crate) const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(100);
/// How often the health service looks whether this node makes progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How long a disk may take for one write until the node calls itself stuck. Slow disks of shared
/// machines have taken seconds; nothing that comes back has taken this.
pub(crate) const STUCK_MAX: Duration = Duration::from_secs(20);

/// How long a node that is scaled away may take to leave its cluster, before all of what follows.
pub(crate) const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How long a node that stops tries to hand leadership over while it still serves. This and the
/// times below make up the 5 s in which a stopped node has ended.
pub(crate) const HANDOVER_MAX: Duration = Duration::from_millis(700);
/// How long streams may take to end after they were told that the node stops.
pub(crate) const DRAIN_MAX: Duration = Duration::from_millis(1_000);
/// How long the node itself may take to stop.
pub(crate) const NODE_STOP_MAX: Duration = Duration::from_millis(2_500);
/// How long what is left may take to end before the process ends anyway.
pub(crate) const RUNTIME_STOP_MAX: Duration = Duration::from_millis(300);
