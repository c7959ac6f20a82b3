//! Every encoding of Ringfence: the public protocol, the messages between nodes, and the bytes of
//! log entries and snapshots.
//!
//! It decides nothing: it turns bytes into the core's types and back, and says what is wrong with
//! bytes that have no meaning.

mod error;
mod fields;
mod generated;
pub mod record;
pub mod refusal;
pub mod text;
mod traceparent;
pub mod wire;

pub use error::DecodeError;
pub use generated::ringfence::raft::v1 as raft;
pub use generated::ringfence::v1;
pub use refusal::Refusal;
pub use traceparent::TraceParent;

/// The descriptors of the public services with their comments, for server reflection.
#[cfg(feature = "generate")]
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/public.bin"));
