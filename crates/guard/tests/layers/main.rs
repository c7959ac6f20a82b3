//! The layer before a service: which requests pass, and what the others are told.
#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)]

mod refusing;
mod routing;
mod support;
