//! A guard at the door of a service: a tower layer for HTTP and gRPC servers.
//!
//! The fence travels with each request in two headers, which in gRPC are its metadata:
//! [`LEASE_HEADER`] carries the lease name and [`TOKEN_HEADER`] the token in decimal digits. A
//! [`FenceLayer`] reads them, asks a [`Door`] (any guard, or a follower of floors), and either hands
//! the request on with the [`Fence`](crate::Fence) in its extensions, or answers it with a refusal
//! that programs can tell apart. The client crate has the other side, which attaches them.
//!
//! # The door is not the lock
//! **The handler takes the fence from the extensions and admits it again, in the transaction in
//! which it writes.** A request that passed the door can be paused behind it for any time, in a
//! queue, by the scheduler, by a lock; meanwhile a newer holder passes the door, reads and writes,
//! and then the older request writes over that. Only the mark in the store's own transaction
//! closes the gap. What the door saves is work: who is stale learns it before anything is done.
//!
//! ```text
//! old holder  door: 8 passes ─ paused ──────────────────────────── writes (nothing stops it here)
//! new holder                    door: 9 passes, reads, writes
//! ```
//!
//! # Which requests need a fence
//! Every one, unless a route says otherwise: see [`Policy`] and [`FenceLayer::route`]. Keep the strict
//! policy as the rule and name the exceptions, so that a forgotten path is not open.
//!
//! # How it refuses
//! A request is gRPC if its content type begins with `application/grpc`.
//!
//! | reason | HTTP | gRPC | what the caller does |
//! |---|---|---|---|
//! | `STALE_TOKEN` | 409 | `FAILED_PRECONDITION` | stops: its lease is lost |
//! | `MISSING_FENCE` | 428 | `INVALID_ARGUMENT` | sends both headers |
//! | `MALFORMED_FENCE`, `WRONG_LEASE` | 400 | `INVALID_ARGUMENT` | corrects them |
//! | `UNKNOWN_TOKEN`, `NO_FLOORS` and others that pass | 503, `Retry-After: 1` | `UNAVAILABLE` with `RetryInfo` | tries again |
//!
//! Over HTTP the body is JSON: `domain` (`ringfence`), `reason`, `message`, `metadata`. Over gRPC the
//! status carries a `google.rpc.ErrorInfo` of the same content. A `STALE_TOKEN` has also the header
//! [`STALE_HEADER`] with the fence that was refused, so that a client need not read a body to learn
//! that its lease is lost. A handler whose store refuses answers in the same words, by
//! [`TurnedAway::http_response`] or [`TurnedAway::grpc_headers`].
//!
//! # What it does not do
//! It does not prove who sends a token: tokens are public. Authenticate callers before this layer.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//!
//! use http::{Request, Response, StatusCode};
//! use ringfence_guard::tower::{FenceLayer, Policy};
//! use ringfence_guard::{Fence, Guard, LeaseName};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let handler = service_fn(|request: Request<String>| async move {
//!     // It goes on to the store, which admits it in the transaction of the write.
//!     let fence = request.extensions().get::<Fence>().cloned();
//!     let said = fence.map_or("read".to_owned(), |fence| format!("written under {fence}"));
//!     Ok::<_, Infallible>(Response::new(said))
//! });
//! let guard = Arc::new(Guard::new(LeaseName::parse("bank/balance")?));
//! let service = FenceLayer::new(guard)
//!     .route("/balance", Policy::Optional)
//!     .layer(handler);
//!
//! let write = |token: &str| {
//!     let request = Request::post("/deposit").header("ringfence-lease", "bank/balance");
//!     request.header("ringfence-token", token).body(String::new())
//! };
//! assert_eq!(service.clone().oneshot(write("9")?).await?.status(), StatusCode::OK);
//! assert_eq!(service.clone().oneshot(write("8")?).await?.status(), StatusCode::CONFLICT);
//!
//! let read = Request::get("/balance").body(String::new())?;
//! assert_eq!(service.clone().oneshot(read).await?.status(), StatusCode::OK);
//! let bare = Request::post("/deposit").body(String::new())?;
//! assert_eq!(service.oneshot(bare).await?.status(), StatusCode::PRECONDITION_REQUIRED);
//! # Ok(())
//! # }
//! ```
//!
//! In a tonic server it is `Server::builder().layer(FenceLayer::new(door))`, with routes such as
//! `/bank.Ledger/Read`; a handler finds the fence by `request.extensions().get::<Fence>()`, and turns
//! its store's refusal into a status by `Status::from_header_map(&TurnedAway::from(refused).grpc_headers())`.

mod body;
mod door;
mod headers;
mod policy;
mod response;
mod service;
mod status;
mod turned_away;

pub use body::FenceBody;
pub use door::{Door, DoorFn, door_fn};
#[cfg(any(test, fuzzing))]
pub(crate) use headers::fence_in;
pub use headers::{LEASE_HEADER, STALE_HEADER, TOKEN_HEADER};
pub use policy::{Policy, Routes};
pub use service::{FenceLayer, FenceService};
pub use turned_away::TurnedAway;
