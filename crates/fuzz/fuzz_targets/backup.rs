//! A backup of any records.
#![no_main]

#[path = "../../proto/tests/formats/feed.rs"]
#[allow(dead_code, reason = "each target calls one of its functions")]
mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::backup(bytes));
