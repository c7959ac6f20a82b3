//! What tests share: a naive reference model, invariants, and random histories of entries.
//!
//! - [`model`] says what the state machine must answer to each entry.
//! - [`invariants`] says what must hold after each entry, whatever it answers.
//! - [`arbitrary`] makes histories in which conflicts, duplicates and deadlines are frequent.
//! - [`run`] puts the three together.
//! - `browser` shows pages to a headless browser.
//! - `certificates` signs what tests of TLS need, good and bad.
//! - `ports` keeps ports of loopback for servers that come and go.
//! - `programs` builds with Go what no package has; `s3` is a server of S3, and `etcd` an etcd.
//! - [`heap`] counts what a piece of work allocates.

pub mod arbitrary;
#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "programs")]
pub mod etcd;
pub mod heap;
pub mod invariants;
#[cfg(feature = "ports")]
pub mod ports;
#[cfg(feature = "programs")]
pub mod programs;
pub mod run;
#[cfg(feature = "programs")]
pub mod s3;
pub mod view;

pub use ringfence_model as model;
