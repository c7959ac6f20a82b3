//! The README's Rust program, word for word.

include!(concat!(env!("OUT_DIR"), "/readme.rs"));
