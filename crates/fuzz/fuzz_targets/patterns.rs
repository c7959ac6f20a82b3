//! Principals, and patterns of principals and names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_core::decoders::patterns(bytes));
