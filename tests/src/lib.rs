//! A cluster of real server processes on loopback, and callers that know nothing but the `.proto`.
//!
//! Processes are started, killed with SIGKILL, stopped with SIGSTOP and started again on the same
//! directories. A [`Caller`] retries as the comments in the `.proto` tell every client to: the same
//! number at another node, until a refusal of our domain or an answer comes.

mod binary;
mod caller;
mod cluster;
mod journal;
mod load;
mod processor;
mod s3;
mod shim;

pub use binary::{built, server};
pub use caller::{Caller, Failure, Session, sixteen_random_bytes};
pub use cluster::{Beside, Cluster, Options, Signal, copy_dir};
pub use journal::{Act, Journal};
pub use load::{Load, Shape};
pub use processor::processor_time;
pub use s3::S3;
pub use shim::{Wall, shim};
