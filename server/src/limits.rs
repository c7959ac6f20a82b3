//! What a node allows the connections to it, and how long its parts may take to stop. What one
//! client may ask of the services stands in `ringfence_services`.

use std::time::Duration;

/// How long a node may have heard nothing from the leader and still call itself ready.
pub(crate) const READY_AGE_MAX: Duration = Duration::from_secs(2);

/// The most connections of clients, unless `--client-connections-max` says another number.
pub(crate) const CLIENT_CONNECTIONS_STANDARD: u64 = 10_000;
/// The most connections to `/livez`, `/readyz` and `/metrics`; the oldest makes room.
pub(crate) const HTTP_CONNECTIONS_MAX: usize = 128;
/// How long such a connection may send nothing.
pub(crate) const HTTP_SILENCE_MAX: Duration = Duration::from_secs(120);
/// Descriptors that are kept for everything but clients: the log, the history, snapshots, other
/// nodes, probes, the API server of Kubernetes.
pub(crate) const DESCRIPTORS_RESERVED: u64 = 640;
/// The most streams and calls at a time on one connection.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;
/// The HTTP/2 window of a connection: what a client may send before the services read it. h2 takes
/// half of it as its budget for small frames that the services have not read, some 20,000, and
/// closes the connection behind it; one stream's window holds fewer.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// The HTTP/2 window of a stream: the largest message.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// How many calls a client may cancel before the node has seen them begin; h2 closes the connection
/// behind it. A node that was paused finds many at once: as many as may be open.
pub(crate) const CANCELLED_UNSEEN_MAX: usize = STREAMS_PER_CONNECTION_MAX as usize;
/// The most bytes of the headers of one call.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 << 10;
/// How many bytes of what a client of HTTP/1 sends behind a request are read before that is answered,
/// about.
pub(crate) const AHEAD_BYTES_MAX: usize = 4 << 10;
/// How long a client that has sent more is still served: from there on it is not noticed that it has
/// gone, so it is closed.
pub(crate) const AHEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it still lives.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long it may take to answer.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many probes of TCP a connection may leave without an answer, one after each of these times.
pub(crate) const TCP_PROBES_MAX: u32 = 3;

/// How often the health service looks whether this node makes progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How long a node is unready before its log says so: elections and starts are over by then.
pub(crate) const NOT_READY_LOG_AFTER: Duration = Duration::from_secs(3);
/// How long it is before the log says so again.
pub(crate) const NOT_READY_LOG_PAUSE: Duration = Duration::from_secs(300);
/// How long a disk may take for one write until the node calls itself stuck. Slow disks of shared
/// machines have taken seconds; nothing that comes back has taken this.
pub(crate) const STUCK_MAX: Duration = Duration::from_secs(20);

/// The most spans a second that are recorded of traces that this node begins, and as many of those that
/// callers began; a call of a leader has about three.
pub(crate) const SPANS_PER_SECOND_MAX: u64 = 2_000;
/// The most spans that wait for the collector.
pub(crate) const SPANS_QUEUED_MAX: usize = 8_192;
/// And the most memory that they take, in bytes.
pub(crate) const SPANS_QUEUED_BYTES_MAX: usize = 8 << 20;
/// The most spans in one message to the collector.
pub(crate) const SPAN_BATCH_MAX: usize = 512;
/// How long fewer wait for more.
pub(crate) const SPAN_BATCH_WAIT: Duration = Duration::from_secs(1);
/// The most points of figures in one message to the collector.
pub(crate) const METRIC_POINTS_MAX: usize = 2_000;
/// The most bytes of an answer of the collector, and of its headers.
pub(crate) const OTLP_ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long connecting to the collector may take.
pub(crate) const OTLP_CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often a message is tried until it is dropped.
pub(crate) const OTLP_TRIES_MAX: u32 = 5;
/// The pause behind the first try that failed; it doubles.
pub(crate) const OTLP_PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, also if the collector asks for a longer one.
pub(crate) const OTLP_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest value of a variable of OpenTelemetry, in bytes.
pub(crate) const OTLP_VARIABLE_BYTES_MAX: usize = 16 << 10;
/// The most pairs in one of them that is a list.
pub(crate) const OTLP_ATTRIBUTES_MAX: usize = 64;
/// How long a node that stops exports what still waits. It does so while it stops.
pub(crate) const OTLP_FLUSH_MAX: Duration = Duration::from_secs(2);
/// How long the log says nothing more of the collector after a line about it.
pub(crate) const OTLP_LOG_PAUSE: Duration = Duration::from_secs(30);

/// How long a node that is scaled away may take to leave its cluster, before all of what follows.
pub(crate) const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How long a node that stops tries to hand leadership over while it still serves. This and the
/// times below make up the 5 s in which a stopped node has ended.
pub(crate) const HANDOVER_MAX: Duration = Duration::from_millis(700);
/// How long streams may take to end after they were notified that the node stops.
pub(crate) const DRAIN_MAX: Duration = Duration::from_millis(1_000);
/// How long the node itself may take to stop.
pub(crate) const NODE_STOP_MAX: Duration = Duration::from_millis(2_500);
/// How long what is left may take to end before the process ends anyway.
pub(crate) const RUNTIME_STOP_MAX: Duration = Duration::from_millis(300);
