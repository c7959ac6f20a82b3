//! Rules, and what they allow.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_core::decoders::rules(bytes));
