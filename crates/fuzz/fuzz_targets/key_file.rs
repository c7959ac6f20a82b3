//! The key file of an issuer of JWTs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_access::decoders::key_file(bytes));
