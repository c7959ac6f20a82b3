//! The text of a cluster token.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_access::decoders::cluster_token(bytes));
