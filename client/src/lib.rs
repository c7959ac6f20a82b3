//! Fenced leases for Rust services: losing a lease cannot be overlooked.

mod acquire;
mod builder;
mod client;
mod clock;
mod endpoint;
mod error;
mod handle;
mod lease;
mod loss;
mod session;

pub use acquire::{Acquire, AcquireError, Blocked, Holder};
pub use builder::ClientBuilder;
pub use client::Client;
pub use clock::{BootClock, Clock, Moment, Sleep};
pub use error::{AttachError, CallError, CloseError, ConnectError, OpenError, ReleaseError};
pub use handle::{InvalidHandle, SessionHandle};
pub use lease::{HeldLease, TransferError, Transferred};
pub use loss::Loss;
pub use ringfence_core::{FencingToken, LeaseName, SessionId};
pub use ringfence_proto::refusal::Refusal;
pub use ringfence_proto::v1 as proto;
pub use session::{Session, SessionOptions, SessionState};
