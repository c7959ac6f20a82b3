//! What a node allows one client to ask of it. Limits of the replicated state are settings and
//! stand in `ringfence_core`, limits of single messages in `ringfence_proto::wire`; these here
//! protect the node itself.

use std::time::Duration;

use ringfence_access::Rate;

/// The most requests of one stream that are under way; the stream is read again when one of them
/// is answered. Requests that may wait for a lease do not count.
pub(crate) const IN_FLIGHT_PER_STREAM_MAX: usize = 4_096;
/// The most requests of one connection that wait for a lease.
pub(crate) const WAITS_PER_CONNECTION_MAX: usize = 65_536;
/// The most streams of one connection that have carried a message of more than 16 KiB: each keeps the
/// buffers that it took, up to 1 MiB for what it reads and as much for its largest answer.
pub(crate) const LARGE_STREAMS_PER_CONNECTION_MAX: usize = 16;
/// How long the next one waits for its place until its call ends with `LIMIT`.
pub(crate) const LARGE_STREAM_WAIT_MAX: Duration = Duration::from_secs(5);
/// A message to a client ends behind the frame with which it passes this size, in bytes.
pub(crate) const REPLY_BYTES_AIM: usize = 256 << 10;
/// The most keep-alive messages of one `Sessions.KeepAlive` stream that are under way.
pub(crate) const KEEP_ALIVES_PER_STREAM_MAX: usize = 64;

/// The most sessions and acknowledged losses of one connection whose keep-alives are under way; what
/// comes behind them is not read meanwhile. A message may name more, and then is under way alone.
pub(crate) const KEEP_ALIVES_PER_CONNECTION_MAX: u32 = 4_096;
/// After keep-alives of so many sessions and losses a stream lets all others have their turn.
pub(crate) const KEEP_ALIVE_SESSIONS_PER_TURN: usize = 256;

/// The bytes of one connection that a node always has room for: calls, messages that arrive,
/// replies that the client has not read. The largest keep-alive that there may be fits with its answer,
/// so no client loses sessions by what others hold.
pub(crate) const BYTES_PER_CONNECTION_SHARE: usize = 2 << 20;
/// The most bytes of one connection; beyond its share they are borrowed from what all have.
pub(crate) const BYTES_PER_CONNECTION_MAX: usize = 32 << 20;
/// The most bytes that all connections of a node borrow together.
pub(crate) const BYTES_PER_NODE_MAX: usize = 512 << 20;
/// The most bytes of replies that one stream holds, those of requests under way included.
pub(crate) const BYTES_PER_STREAM_MAX: usize = 8 << 20;
/// What each call or stream takes alone, about: tasks, buffers, the state of HTTP/2.
pub(crate) const BYTES_PER_CALL: usize = 16 << 10;
/// What a reply is expected to take until it is known.
pub(crate) const REPLY_BYTES_EXPECTED: usize = 1 << 10;
/// What a request that waits for a lease takes.
pub(crate) const WAIT_BYTES: usize = 256;
/// What a keep-alive under way and its answer are expected to take for each session named.
pub(crate) const REPLY_BYTES_PER_SESSION: usize = 128;
/// What a keep-alive under way takes for each loss that it acknowledges: two numbers here, the same on
/// their way to the leader, and what they are encoded in.
pub(crate) const KEEP_ALIVE_BYTES_PER_LOSS: usize = 48;
/// How long a connection that waits for room waits until it looks at the pool again.
pub(crate) const POOL_RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long a stream that holds as much as it may can go without any room, and how long a large answer
/// may wait until it is read; then the connection is closed, since the client reads nothing.
pub(crate) const REPLY_STALL_MAX: Duration = Duration::from_secs(30);
/// How long a message may take from its first byte to its last.
pub(crate) const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);

/// The most backups that a node writes at a time.
pub(crate) const BACKUPS_MAX: usize = 1;
/// The most bytes of a backup in one message.
pub(crate) const BACKUP_PART_BYTES_MAX: usize = 256 << 10;
/// How many parts of a backup wait for its reader.
pub(crate) const BACKUP_PARTS_AHEAD: usize = 2;
/// How long a part waits for its reader; then the backup is given up, since it keeps a frozen state.
pub(crate) const BACKUP_STALL_MAX: Duration = Duration::from_secs(30);

/// The most watches, of leases, of floors and of Lease objects, that a node serves at a time.
pub(crate) const WATCHERS_MAX: usize = 10_000;
/// The most of them that one principal may have where rights bind.
pub(crate) const WATCHERS_PER_PRINCIPAL_MAX: usize = WATCHERS_MAX / 4;
/// The most events that are reported in one message of a watch. With names, identities and data at
/// their limits such a message has about 100 KiB, and each watch has a few of them in memory.
pub(crate) const EVENTS_PER_MESSAGE_MAX: usize = 64;
/// A watch's position moves on at least this often.
pub(crate) const WATCH_QUIET_MAX: Duration = Duration::from_millis(700);
/// How many messages of a watch may wait for a slow reader; behind them it falls back in the ring
/// of events, and in the end hears `compacted`.
pub(crate) const WATCH_MESSAGES_MAX: usize = 1;
/// The room that is made for an event of a watch before it is known how much it takes: about the most
/// that it can.
pub(crate) const WATCH_EVENT_BYTES_EXPECTED: usize = 2 << 10;
/// The same for a whole message. A connection with less room receives fewer events at a time, and
/// with the room of one still hears all of them, and its position.
pub(crate) const WATCH_MESSAGE_BYTES_EXPECTED: usize =
    EVENTS_PER_MESSAGE_MAX * WATCH_EVENT_BYTES_EXPECTED;
/// The most frozen states, at different indices, that all watches of a node tell at a time. Each of
/// them keeps in memory what has changed since, at most as much as the whole state takes. A present
/// state of one message needs none.
pub(crate) const WATCH_PRESENTS_MAX: usize = 4;
/// How long a reader of the present state may let a message wait; then its watch ends, since
/// others may have to wait for the memory.
pub(crate) const WATCH_PRESENT_STALL_MAX: Duration = Duration::from_secs(30);
/// How many leases of the present state a reader has to take in a second: a whole present state
/// may take as long as one message, and a second more for each so many leases. With names,
/// identities and data at their limits this is 8 MB a second.
pub(crate) const WATCH_PRESENT_PACE_MIN: u32 = 5_000;

/// The most Lease objects of which a list answers at a time, with their metadata at its limit about
/// 100 KiB in memory; between two such steps all other work of the node has its turn.
pub(crate) const OBJECTS_PER_STEP_MAX: usize = 32;
/// The most lists of Lease objects, and present states of watches of them, that a node has under way, of
/// those that take more than one step.
pub(crate) const LISTS_MAX: usize = 64;
/// The most of them that one principal may have where rights bind.
pub(crate) const LISTS_PER_PRINCIPAL_MAX: usize = LISTS_MAX / 4;
/// How many Lease objects a reader of a list has to take in a second: a whole list may take
/// [`REPLY_STALL_MAX`], and a second more for each so many objects. With their metadata at its limit this is
/// 4 MB a second.
pub(crate) const LIST_PACE_MIN: u64 = 1_000;
/// How many objects that a list looks at count as one request of its principal.
pub(crate) const OBJECTS_PER_REQUEST: u64 = 10;

/// A page of a list ends before it passes this size, in bytes; with the rest of its message it
/// stays below the 4 MiB that gRPC clients take unless set otherwise.
pub(crate) const PAGE_BYTES_MAX: usize = (4 << 20) - (64 << 10);
/// The room that is made for a page of a list or of history before it is known how much it takes, for
/// each item that was asked for; the whole page takes at most [`PAGE_BYTES_MAX`].
pub(crate) const PAGE_BYTES_PER_ITEM: usize = 2 << 10;
/// How long a page that was asked for waits for its room until it is refused.
pub(crate) const PAGE_ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// The most lists whose later pages a node can still answer; of the principal that has most of them, the
/// one that was not asked for longest goes first. Each keeps in memory what has changed since its first page, at most as much as the
/// whole state takes.
pub(crate) const LISTINGS_MAX: usize = 8;
/// How long a node keeps a list, from its first page on.
pub(crate) const LISTING_AGE_MAX: Duration = Duration::from_secs(60);

/// Requests of one principal in a second, and at once, unless `serve --principal-requests-max` says
/// another number; keep-alives do not count. etcd and Consul have no such limit of their own (etcd
/// refuses all clients when 5,000 entries wait to be applied; Consul's `request_limits` are for a whole
/// server, and off). This is about what one node commits in a second, so that no program that works
/// today meets it.
pub(crate) const REQUESTS_PER_PRINCIPAL: u64 = 10_000;
/// Bytes of requests and answers of one principal in a second, and at once, unless
/// `serve --principal-bytes-max` says another number: 16 full pages of a list, or half of a gigabit
/// network.
pub(crate) const BYTES_PER_PRINCIPAL: u64 = 64 << 20;
/// Connections of one principal at a time, unless `serve --principal-connections-max` says another
/// number: half of what a node takes altogether, so that one principal does not shut out all others.
/// All Pods of a Deployment are one principal. Consul's limit is 100 or 200 for each address.
pub(crate) const CONNECTIONS_PER_PRINCIPAL: u64 = 5_000;
/// The principals whose rates a node counts; those that asked for least make room.
pub(crate) const PRINCIPALS_COUNTED_MAX: usize = 16_384;
/// The principals that one connection counts for, if it carries the calls of several.
pub(crate) const PRINCIPALS_PER_CONNECTION_MAX: usize = 16;
/// Sessions that a node does not know as the caller's, and losses that it does not know, of which one
/// principal may name so many in a second and at once all the same: two of the largest keep-alives, so
/// that a client hears at once that all of its sessions have ended. Through the log each session costs
/// up to a microsecond or two of the leader.
pub(crate) const UNKNOWN_SESSIONS_PER_PRINCIPAL: Rate = Rate {
    per_second: 10_000,
    burst: 20_000,
};
/// The same of one connection, beside its principal: about what one process has, so that it hears of
/// its ends though another one has used up the rate of their principal.
pub(crate) const UNKNOWN_SESSIONS_PER_CONNECTION: Rate = Rate {
    per_second: 10,
    burst: 100,
};
/// As how many of them a request in such a session counts, since each is an entry of the log: 200 a
/// second of a principal, and two at once of a connection beside that.
pub(crate) const UNKNOWN_REQUEST_COST: usize = 50;
/// How long a connection is not read for each such session or loss beyond these rates, and for each
/// handle that is none: a second for 10,000 of them.
pub(crate) const UNKNOWN_SESSION_PAUSE: Duration = Duration::from_micros(100);
/// The kinds of refusals, by principal and verb, that are counted apart for the audit log between two
/// of its lines.
pub(crate) const REFUSALS_COUNTED_APART_MAX: usize = 1_024;

/// How soon a node that has a leader knows whether it has caught up, once it is asked.
pub const CAUGHT_UP_AFTER: Duration = Duration::from_millis(500);
/// How often a stream looks whether its caller is banned or its credential over, if it sends nothing.
pub(crate) const ACCESS_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The least time between two lines of the log about refusals for want of a right.
pub(crate) const DENIAL_LOGGED_EVERY: Duration = Duration::from_secs(1);

/// When the caller of a unary call has a deadline, it is answered a tenth of its time earlier, so
/// that the answer still reaches it; at least this much.
pub(crate) const DEADLINE_MARGIN_MIN: Duration = Duration::from_millis(10);
/// And at most this much.
pub(crate) const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(100);
