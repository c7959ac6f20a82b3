//! The fence in the headers of a guarded service.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guard::decoders::headers(bytes));
