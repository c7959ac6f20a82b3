//! Real servers for tests and benchmarks: each on a free port, in a directory of its own, gone with
//! the value that stands for it. The programs' side stands in files without drivers, which the tests
//! of the command line use, too.

#![allow(dead_code, clippy::unwrap_used)]

mod drivers;
pub(crate) mod etcd;
mod http;
pub(crate) mod machine;
pub(crate) mod mysql;
pub(crate) mod odd_s3;
pub(crate) mod postgres;
mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod s3;

pub(crate) use machine::Disk;
