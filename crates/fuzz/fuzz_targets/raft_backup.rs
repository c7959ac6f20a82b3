//! A file of a backup, with checksums that are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_raft::decoders::backup(bytes));
