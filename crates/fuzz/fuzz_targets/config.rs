//! The configuration file of a node.
#![no_main]
#![allow(dead_code, reason = "the parts of the binary that are no decoders")]

// The mirror brings a whole client of Kubernetes, and the services a whole node; the configuration
// wants names and addresses alone.
extern crate self as ringfence_kube;
extern crate self as ringfence_services;

#[path = "../../services/src/address.rs"]
mod address;

#[path = "../../kube/src/name.rs"]
mod name;

#[path = "../../../server/src"]
mod server {
    pub(crate) mod config;
    pub(crate) mod duration;
    pub(crate) mod limits;
}

pub use address::{HOST_PORT_ALLOWED, is_host_port};
pub use name::{FLOORS, InvalidNaming, Naming, PREFIX};
use server::{duration, limits};

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
