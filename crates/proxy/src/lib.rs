//! A reverse proxy before a service that cannot check fences itself: only the present holder of a lease
//! gets through.
//!
//! ```text
//!  caller ─▶ connection ─▶ judge: which fence? ─▶ passage: the gate of the lease ─▶ errand ─▶ service
//!                              │                      │
//!                              └────── refusal ◀──────┘
//! ```
//!
//! # What it promises
//! * **A request under an older token than one that has come before is refused**, with 412 and the header
//!   `ringfence-stale`. The mark of each lease is in a file, and is there before the first request of a
//!   new holder goes on, so it outlives the proxy.
//! * **No request is let in while one under an older token is not over.** It is over when the proxy has seen
//!   its end, or [`Options::request_max`] after its connection was severed: see the module `gate`. While a
//!   newer holder waits no request of the older one is let in. If that takes longer than
//!   [`Options::drain`], see [`Undrained`].
//! * Requests of one holder run at the same time, and so do those of different leases.
//!
//! # What it cannot promise
//! The mark is not part of the service's own transaction. So:
//! * **A service that is at work on what it has received for longer than [`Options::request_max`] can write
//!   behind a newer holder.** At that age of a request its connection is severed: what was not sent is not
//!   sent any more, and what the service has received it may carry out at any later time. The proxy waits as
//!   long again, and no longer. Set the limit above what the service takes, and let the service itself give
//!   up before.
//! * The same holds from [`Options::drain`] on with [`Undrained::Cut`].
//! * What a service does after its answer is never seen here.
//! * What reaches the service past the proxy is judged by none. The service listens where only the proxy
//!   can connect: on a loopback address or in a Pod, of which this is a sidecar.
//! * Two proxies before one service know nothing of each other. Both refuse to share a file of marks.
//! * It does not prove who sends a token: tokens are public. Callers are authenticated before it.
//!
//! # After a start
//! What the process before has let in is not known, and which of its marks had been let in neither. So every
//! lease with a mark in the file waits, under whatever token, for the longer one of [`Options::drain`] and
//! [`Options::request_max`], of this process and the one before. Not if the one before has stopped with
//! nothing inside, which it notes in the file.
//!
//! # What it does not do
//! It speaks HTTP/1.1 to the service: a connection has one request then, which can be severed. So gRPC does
//! not pass. Trailers are not passed on, in neither direction.
//!
//! Where a store can keep the mark next to its data, a guard in its transaction is stronger than this, and
//! needs no waiting: see `ringfence-guard`.

mod answer;
mod clock;
mod connection;
mod crowd;
mod errand;
mod failure;
mod gate;
mod judge;
mod marks;
mod options;
mod passage;
mod pool;
mod request;
mod serve;
mod severable;
mod upload;

pub use failure::Failure;
pub use marks::{Marks, MarksError};
pub use options::{LEASES_MAX, Limits, MARKS_MAX, Options, Undrained, Upstream, UpstreamError};
pub use serve::Proxy;
