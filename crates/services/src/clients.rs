//! Connections of clients, and the memory that each of them may take.
//!
//! ```text
//!   connection{ Client{ account } } ──> metered bodies ──> services: outbox, watch, lists
//!                      │                          │                        │
//!                      └──── Account <────────────┴── bytes charged until they are written
//!                               └──> Pool: what all connections of the node share
//! ```

mod account;
mod body;
mod client;
mod counted;
mod incoming;
mod metered;
mod reserved;
mod whole;

pub(crate) use account::Held;
pub use account::{Account, Pool};
pub use client::Client;
pub use metered::MeteredLayer;
pub(crate) use metered::crowded;
pub(crate) use reserved::{Reserved, Unread};
pub use whole::{NoBody, WholeBody};
