//! Headers and messages of other nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_raft::decoders::peer(bytes));
