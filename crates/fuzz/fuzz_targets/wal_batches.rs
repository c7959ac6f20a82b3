//! A segment of the log on disk, with checksums that are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_wal::decoders::batches(bytes));
