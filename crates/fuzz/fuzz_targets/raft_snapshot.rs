//! A snapshot file, with checksums that are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_raft::decoders::snapshot(bytes));
