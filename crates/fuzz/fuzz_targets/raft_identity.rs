//! The identity file of a node.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_raft::decoders::identity(bytes));
