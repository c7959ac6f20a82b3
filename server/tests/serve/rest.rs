//! The calls in HTTP and JSON, by sockets that know nothing but bytes.

mod calls;
mod client;
mod events;
mod refused;
mod repeats;
mod schema;
mod strange;
