//! The layer before a service: which requests pass, and what the others receive.
#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)]

mod over_http;
mod planted;
mod refusing;
mod routing;
mod suite;
mod support;
