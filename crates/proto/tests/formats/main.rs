//! The encodings: round trips, golden bytes, damaged bytes, refusals, and the shape of the
//! `.proto` files.
//!
//! `RECORD=1 cargo test -p ringfence-proto` writes the golden files again. Bytes that were written
//! once stay readable for ever: read the difference before you keep it.
#![allow(clippy::unwrap_used)]

mod arbitrary;
mod damage;
mod examples;
mod feed;
mod generated;
mod golden;
mod levels;
mod refusals;
mod round_trips;
mod schema;
mod secrets;
mod wire;
mod wire_golden;

/// Decoders are measured.
#[global_allocator]
static HEAP: ringfence_testkit::heap::Counting = ringfence_testkit::heap::Counting;
