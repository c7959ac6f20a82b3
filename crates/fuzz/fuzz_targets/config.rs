//! The configuration file of a node.
#![no_main]
#![allow(dead_code, reason = "the parts of the binary that are no decoders")]

// The mirror brings a whole client of Kubernetes; the configuration wants its names alone.
extern crate self as ringfence_kube;

#[path = "../../kube/src/name.rs"]
mod name;

#[path = "../../../server/src"]
mod server {
    pub(crate) mod config;
    pub(crate) mod duration;
}

pub use name::{InvalidNaming, Naming, PREFIX};
use server::duration;

mod leave {
    /// The place of a Pod in its StatefulSet, as far as the configuration reads it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Ordinal(String, u64);

    impl Ordinal {
        pub(crate) fn of(pod: &str) -> Option<Self> {
            let (set, number) = pod.rsplit_once('-')?;
            Some(Self(set.to_owned(), number.parse().ok()?))
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| server::config::any_file(bytes));
