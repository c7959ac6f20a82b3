//! A segment of the log on disk, byte by byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_wal::decoders::segment(bytes));
