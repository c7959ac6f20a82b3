//! The limits of a port.

use std::time::Duration;

use crate::places::WhenFull;

/// How long a TLS handshake may take, from the accept on.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long a connection may take to send the first bytes of its protocol.
pub const FIRST_BYTES_MAX: Duration = Duration::from_secs(10);

/// How long the other side may take nothing while something waits to be written.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// What every HTTP/2 connection begins with: the preface and the head of a frame, in bytes.
pub const HTTP2_FIRST_BYTES: usize = 24 + 9;

/// The shortest request line of HTTP/1, `GET / HTTP/1.1` and its end, in bytes.
pub const HTTP1_FIRST_BYTES: usize = 16;

/// The limits of one port.
#[derive(Clone, Copy, Debug)]
pub struct PortLimits {
    /// The most connections at a time, at least 1.
    pub connections: usize,
    /// What happens to the next one.
    pub when_full: WhenFull,
    /// How many bytes a connection has to send within [`first_bytes_max`](Self::first_bytes_max).
    pub first_bytes: usize,
    /// Whether the head of a request of HTTP/1 is enough instead, however short it is.
    pub or_short_head: bool,
    /// How long it has for them.
    pub first_bytes_max: Duration,
    /// How long it may send nothing after that. `None`: as long as it likes, for protocols with
    /// probes of their own.
    pub silence_max: Option<Duration>,
    /// How long it may take nothing while something waits to be written.
    pub write_stall_max: Duration,
}

impl PortLimits {
    /// A port that speaks HTTP/2, where pings find dead connections.
    #[must_use]
    pub const fn http2(connections: usize) -> Self {
        Self {
            connections,
            when_full: WhenFull::Refuse,
            first_bytes: HTTP2_FIRST_BYTES,
            or_short_head: false,
            first_bytes_max: FIRST_BYTES_MAX,
            silence_max: None,
            write_stall_max: WRITE_STALL_MAX,
        }
    }

    /// A port that speaks HTTP/2, and HTTP/1 with clients that begin with that. Its server ends
    /// connections of HTTP/1 that are idle, and requests that do not come to their end.
    #[must_use]
    pub const fn http(connections: usize) -> Self {
        Self {
            or_short_head: true,
            ..Self::http2(connections)
        }
    }

    /// A port that speaks HTTP/1 with short requests: a connection is closed when it sends nothing
    /// for `silence_max`, and the oldest one makes room for a new one.
    #[must_use]
    pub const fn http1(connections: usize, silence_max: Duration) -> Self {
        Self {
            connections,
            when_full: WhenFull::ReplaceOldest,
            first_bytes: HTTP1_FIRST_BYTES,
            or_short_head: false,
            first_bytes_max: FIRST_BYTES_MAX,
            silence_max: Some(silence_max),
            write_stall_max: WRITE_STALL_MAX,
        }
    }
}
