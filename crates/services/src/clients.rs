//! The client port: its connections, and the memory that each of them may take.
//!
//! ```text
//!   Port ──> ClientConnection{ account } ──> metered bodies ──> services: outbox, watch, lists
//!                      │                          │                        │
//!                      └──── Account <────────────┴── bytes charged until they are written
//!                               └──> Pool: what all connections of the node share
//! ```

mod account;
mod body;
mod connection;
mod incoming;
mod metered;
mod reserved;

pub(crate) use account::{Account, Held, Pool};
pub(crate) use connection::{Client, ClientConnection};
pub(crate) use metered::{MeteredLayer, crowded};
pub(crate) use reserved::Reserved;
