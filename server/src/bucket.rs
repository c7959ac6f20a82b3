//! Backups in buckets: S3 and its like, Google Cloud Storage and Azure Blob Storage.
//!
//! ```text
//!   place ──── a path of this machine, or a URL
//!   url ────── which object of which bucket
//!   store ──── the client of a bucket, made from the environment
//!     environment ─ whether it can be made from that
//!     http ─── what sends its requests
//!   upload ─── an object that is there as a whole or not at all
//!   download ─ a backup that is checked while it comes
//!   error ──── what went wrong, and what to do
//! ```
//!
//! Credentials come from the environment and from nowhere else: a command line is seen by every
//! process of the machine, and a URL is logged.

mod answers;
mod download;
mod environment;
mod error;
mod http;
mod place;
mod store;
mod upload;
mod url;

pub(crate) use self::download::{ReadError, find_name, names, read};
pub(crate) use self::error::{BucketError, Means};
pub(crate) use self::place::Place;
pub(crate) use self::upload::{Upload, put};
pub(crate) use self::url::{BucketUrl, UrlError};
