//! The configuration file of a node.
#![no_main]
#![allow(dead_code, reason = "the parts of the binary that are no decoders")]

#[path = "../../../server/src"]
mod server {
    pub(crate) mod config;
    pub(crate) mod duration;
}

use server::duration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| server::config::any_file(bytes));
