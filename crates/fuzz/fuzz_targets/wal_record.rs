//! Records, checkpoints and file names of the log on disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_wal::decoders::record(bytes));
