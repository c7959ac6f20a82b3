//! What the build script makes of the `.proto` files, nested as their packages are, since
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

pub mod ringfence {
    pub mod v1 {
        tonic::include_proto!("ringfence.v1");
    }
    pub mod raft {
        pub mod v1 {
            tonic::include_proto!("ringfence.raft.v1");
        }
    }
    pub mod record {
        pub mod v1 {
            tonic::include_proto!("ringfence.record.v1");
        }
    }
}

// `Debug` of messages with a secret.
include!(concat!(env!("OUT_DIR"), "/hidden.rs"));
