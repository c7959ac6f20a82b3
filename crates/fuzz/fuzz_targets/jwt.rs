//! JWTs: header, claims and signature, a line each.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_access::decoders::jwt(bytes));
