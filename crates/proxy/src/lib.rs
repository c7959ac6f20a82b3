//! A reverse proxy before a service that cannot check fences itself: only the present holder of a lease
//! gets through.
//!
//! ```text
//!  caller ──▶ serve ──▶ judge: which fence? ──▶ passage: the mark, and what is inside ──▶ forward ──▶ service
//!                          │                       │
//!                          └───────── refusal ◀────┘
//! ```
//!
//! # What it promises
//! * **A request under an older token than one that has passed is refused**, with 412 and the header
//!   `ringfence-stale`. The mark of each lease is in a file, and is there before the first request of a
//!   new holder goes on, so it outlives the proxy.
//! * **A newer holder waits until the older one's requests are over**, whatever connection they came by:
//!   its first request goes on once the service has answered each of them. While it waits no request of
//!   the older one is let in. If that takes longer than [`Options::drain`], see [`Undrained`].
//! * Requests of one holder run at the same time, and so do those of different leases.
//!
//! # What it cannot promise
//! The mark is not part of the service's own transaction. So:
//! * A request that has reached the service, and whose answer was not seen, is *unknown*: the service may
//!   carry it out at any later time. This happens when a caller goes away in the middle of its own
//!   request or of the answer, when the service does not answer within [`Options::request_max`], and when a request is cut
//!   ([`Undrained::Cut`]). What a service does after its answer is never seen here.
//! * What reaches the service past the proxy is judged by none. The service listens where only the proxy
//!   can connect: on a loopback address or in a Pod, of which this is a sidecar.
//! * Two proxies before one service know nothing of each other. Both refuse to share a file of marks.
//! * It does not prove who sends a token: tokens are public. Callers are authenticated before it.
//!
//! # After a start
//! The requests that the process before has let through are not known. So for [`Options::drain`] from the
//! start on, a token above a mark that was found in the file waits.
//!
//! Where a store can keep the mark next to its data, a guard in its transaction is stronger than this, and
//! needs no waiting: see `ringfence-guard`.

mod answer;
mod clock;
mod failure;
mod forward;
mod judge;
mod marks;
mod options;
mod passage;
mod serve;

pub use failure::Failure;
pub use marks::{Marks, MarksError};
pub use options::{LEASES_MAX, Limits, MARKS_MAX, Options, Undrained, Upstream, UpstreamError};
pub use serve::Proxy;
