//! Fences, tokens and names as text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guard::decoders::fence(bytes));
