//! The names in a client certificate.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_access::decoders::certificate(bytes));
