//! Fenced leases for Rust services: losing a lease cannot be overlooked.
//!
//! A [`Client`] keeps one stream to a Ringfence cluster. A [`Session`] on it is a liveness contract:
//! one keep-alive renews all its leases. A [`HeldLease`] is the right to a named resource until it
//! is released, handed over, or lost, and carries a fencing token for the stores it writes to.
//!
//! # A fenced writer
//!
//! ```no_run
//! use ringfence_client::{Client, Fence, Refused};
//!
//! # struct Store;
//! # impl Store {
//! #     async fn advance(&self, fence: &Fence) -> Result<(), Refused> { Ok(()) }
//! #     async fn add(&self, fence: &Fence, n: u64) -> Result<(), Refused> { Ok(()) }
//! # }
//! async fn write(store: Store) -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect(["10.0.0.1:7420", "10.0.0.2:7420"]).await?;
//!     // Waits until it is free; `wait` and `try_once` limit that.
//!     let lease = client.lock("billing/ledger").await?;
//!
//!     // Drops the work at the loss of the lease, and ends belief when the store refuses the fence.
//!     let work = lease.guarded(|fence| async move {
//!         // Before the first read: from here on the store refuses the holder before.
//!         store.advance(&fence).await?;
//!         for n in 0..100 {
//!             // The store writes only if it has seen no greater token, in one transaction.
//!             store.add(&fence, n).await?;
//!         }
//!         Ok::<_, Refused>(())
//!     });
//!     work.await?;
//!     lease.release().await?;
//!     // Gives back everything that is left, and waits for it.
//!     client.shutdown().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Sealing
//!
//! A store knows nothing of a new holder until that shows its fence, and takes the old one's writes
//! until then. [`Acquire::seal`], [`LockRequest::seal`] and [`Campaign::seal`] name the guards that the
//! work will touch: after the grant all of them raise their marks at once, and the lease is reported held
//! when all have answered. From then on none of them admits a write of an earlier holder, also if an
//! operator has revoked the lease without waiting for that. What is done about a guard that does not
//! answer is up to the [`Seal`]. It is no part of what a grant is: the window counts from the same
//! moment, and another client that does not seal may hold the lease next.
//!
//! What a seal does not cover: a store that is set back to an older copy afterwards. Its mark has
//! fallen with its data, and is to be advanced to the lease's newest token before it serves writes.
//!
//! # Electors
//!
//! An [`Elector`] campaigns for leases for ever: it runs the leader's work while it leads, drops it
//! at the loss, and stands again. [`Campaign::run`] takes work, [`Campaign::run_callbacks`]
//! callbacks, [`Campaign::lead`] blocks until it leads, [`Campaign::once`] runs something to its
//! end, [`Elector::candidates`] splits work into shards, and a [`RawLock`] is renewed by hand. Two
//! tables lie beside the sources: `COMPARISON.md` maps the features of other election libraries to the
//! API here, and `KNOWN-PROBLEMS.md` says how the known problems of other lock services are avoided.
//!
//! # What is guaranteed
//!
//! - **Belief ends in time.** [`Term::is_valid`] asks the clock each time, and says no from
//!   [`Term::valid_until`] on, which lies before the moment at which the cluster can give the
//!   lease to another client, as long as no clock is wrong by more than 1 %. The clock goes on
//!   while the machine is suspended.
//! - **Loss is final.** A lease that was once reported lost is never reported held again, whatever
//!   reply comes late. Work that begins again has a new token: the old grant is released first.
//! - **Belief ends first.** A release, a hand-over or a close is sent after belief has ended.
//! - **One effect.** A request is repeated under its own number until its outcome is known. The
//!   errors keep apart what was [refused](CallError::Refused), what was [not
//!   done](CallError::Unavailable) and what [may have been done](CallError::Unknown).
//! - **Nothing is left behind.** Dropping an acquire at any point cancels it; a grant that crossed
//!   the cancel is released. Dropping a [`HeldLease`] releases it, dropping the last clone of a
//!   [`Session`] closes it. No drop blocks.
//! - **A blocked executor loses no session.** The stream, keep-alives and timers run on a thread of
//!   the client's own, and the futures of this crate complete on any executor. An application that
//!   would rather lose its leases when it is stuck promises a [heartbeat](Session::heartbeat).
//! - **Every call has a deadline**, see [`ClientBuilder::request_timeout`]. A dead or half-open
//!   connection is replaced within [`ClientBuilder::keep_alive`]'s interval and timeout.
//!
//! # What is not
//!
//! - **That no other process writes.** Between asking [`Term::is_valid`] and the write's arrival a
//!   process can be paused for any time. Only a guard inside the store, in the transaction of the
//!   write, keeps a stale writer out: show it the [fence](Term::fence) by
//!   [`Term::guarded`], which ends belief when the guard refuses it.
//! - **That work stops automatically.** Outside [`Term::run`] the application has to look at
//!   [`Term::lost`]; and what a dropped future has spawned elsewhere goes on.
//! - **That a background release arrives** if the process ends right behind the drop. The lease
//!   then lives until its session's TTL is over; await [`HeldLease::release`] or
//!   [`Session::close`] to know.
//! - **Anything about a clock that hides time**: a virtual machine that was paused or cloned without
//!   its clock noticing believes for too long. Guards cover that, too.
//!
//! # Features
//!
//! - `blocking`, off unless asked for: the module `blocking`, for programs without an async runtime.
//!   It brings no further dependency.
//! - `tls`, off unless asked for: `Tls` and `https://` endpoints, with rustls and
//!   ring. Certificates in files are read again when they have changed, for the next connection.
//! - `tower`, off unless asked for: the module `attach`, a layer that puts the fence of a lease into
//!   requests to guarded services. It brings `http` and tower's two traits, which are there already
//!   with the client's own connections.
//! - `sim` and `unstable`, off unless asked for: for the simulation of whole clusters, and for raw
//!   gRPC. Both are for this project's own programs and tests, and carry no promise at all.
//!
//! No type of the gRPC library or of generated code is in what is promised: those can change
//! without a change here.
//!
//! It needs the Rust version that its `Cargo.toml` names, or a later one.
//!
//! # One session or several
//!
//! One session is enough for any mix of leases: an acquire that waits, for hours if need be, holds
//! up no later request. At most 192 other requests of a session are under way at once; one more
//! waits for an answer, and fails as [unavailable](CallError::Unavailable) if none comes in time.

// The layers, from below. No module names one of a layer above its own; `tests/public_api.rs`
// checks it.
mod clock;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
mod sync;

mod transport;

mod watch;

mod session;

mod lease;

#[cfg(feature = "tower")]
pub mod attach;
#[cfg(feature = "blocking")]
pub mod blocking;
mod elector;
mod raw_lock;
#[cfg(feature = "unstable")]
#[doc(hidden)]
pub mod unstable;

// Its examples are compiled where there is a client of Kubernetes: in the crate `kube`.
#[cfg_attr(not(doctest), doc = include_str!("../FROM-CLIENT-GO.md"))]
pub mod from_client_go {}

pub use clock::{BootClock, Clock, Moment, Sleep};
pub use elector::{
    AlreadyRegistered, Campaign, CampaignError, CampaignHandle, CampaignState, Candidates, Elector,
    ElectorBuilder, Gauges, InvalidTimings, Leader, Leading, Outcome, Reading, StopCause, Stopped,
    Successor, Timings,
};
pub use lease::acquire::{Acquire, AcquireError, Blocked, Holder};
pub use lease::identity::{DuplicateIdentity, unique_identity};
pub use lease::lock::LockRequest;
pub use lease::range::Range;
pub use lease::seal::Seal;
pub use lease::term::{Guarded, Term};
pub use lease::working::Working;
pub use lease::{HeldLease, TransferError};
pub use raw_lock::{Lock, LockError, Owner, RawLock};
pub use ringfence_core::{
    ClusterId, EndCause, EndsBelief, Fence, FencingToken, InvalidName, InvalidPod, InvalidText,
    LeaseName, Pod, PodSeen, PodText, PodUid, Refused, SealAnswer, Sealable, SealableFn, Sealing,
    Secret, SessionEnd, SessionId, Verdict, sealable_fn,
};
pub use session::builder::ClientBuilder;
pub use session::client::Client;
pub use session::endings::Transferred;
pub use session::error::{AttachError, CloseError, OpenError, ReleaseError};
pub use session::handle::{InvalidHandle, SessionHandle};
pub use session::heartbeat::Heartbeat;
pub use session::loss::Loss;
pub use session::pod::{POD_VARIABLES, UnknownPod, this_pod};
pub use session::shutdown::ShutdownError;
pub use session::state::SessionState;
pub use session::unsealed::{Unsealed, UnsealedGuard};
pub use session::{Session, SessionOptions};
pub use transport::error::{CallError, ConnectError};
pub use transport::refusal::{Reason, Refusal};
#[cfg(feature = "tls")]
pub use transport::tls::Tls;
pub use transport::trace::TraceParent;
pub use watch::floors::{FLOOR_NAME_BYTES_MAX, FLOOR_NAMES_MAX, Floors, FloorsItem};
pub use watch::info::{EndInfo, GrantInfo, LeaseInfo};
pub use watch::position::{InvalidPosition, Position};
pub use watch::{RestartReason, Watch, WatchItem};
