//! What is made of the `.proto` files, by the build script or beforehand, nested as their packages are, since
//! generated code refers to other packages by relative paths.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::manual_let_else,
    clippy::semicolon_if_nothing_returned,
    rustdoc::all
)]

/// A file of generated code: of this build, or the one that is in the tree.
#[cfg(feature = "generate")]
macro_rules! generated {
    ($file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
    };
}
#[cfg(not(feature = "generate"))]
macro_rules! generated {
    ($file:literal) => {
        include!(concat!("../generated/", $file, ".in"));
    };
}

pub mod ringfence {
    pub mod v1 {
        generated!("ringfence.v1");
    }
    pub mod raft {
        pub mod v1 {
            generated!("ringfence.raft.v1");
        }
    }
    pub mod record {
        pub mod v1 {
            generated!("ringfence.record.v1");
        }
    }
}

// `Debug` of messages with a secret.
generated!("hidden");
