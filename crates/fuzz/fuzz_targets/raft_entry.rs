//! Payloads of log entries, votes, memberships.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_raft::decoders::entry(bytes));
