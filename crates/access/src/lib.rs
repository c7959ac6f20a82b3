//! Proves who calls: from what a connection shows and what a request brings to a principal.
//!
//! ```text
//!   certificate of the peer ─┐
//!   admin socket ────────────┼─> Peer ─┐
//!                                      ├─> Prover::prove ─> Proven | NotProven
//!   `authorization: Bearer …` ─────────┘        │
//!                                issuers' key files, cluster tokens
//! ```
//!
//! An offered bearer token names the caller; a bad one proves nothing, and nothing else is tried.
//! Without one the connection names the caller: the admin socket, then the client certificate. A
//! connection that shows neither is `anonymous`.
//!
//! It decides nothing about rights. It opens no connection: keys of issuers come from files. It reads
//! no clock to judge; the time is an argument. No error repeats a part of a credential.

mod buckets;
mod cache;
mod certificate;
mod clock;
mod cluster_token;
mod credentials;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
mod failures;
mod jwt;
mod limits;
mod not_proven;
mod peer;
mod process;
mod proven;
mod prover;
mod source;

pub use buckets::{Buckets, Exceeded, Rate};
pub use certificate::{CertificateKind, Validity};
pub use clock::{now_unix, until_expiry};
pub use cluster_token::{BearerToken, TokenSecret, Tokens};
pub use credentials::{Credentials, InvalidCredentials, InvalidIssuer, Issuer, IssuerKind};
pub use jwt::JwksSeen;
pub use limits::{
    CACHED_PROOFS_MAX, FAILED_PROOFS_PER_CONNECTION, FAILED_PROOFS_PER_NODE,
    FAILED_PROOFS_PER_SOURCE, ISSUER_ALIAS_BYTES_MAX, ISSUERS_MAX, KEY_FILE_BYTES_MAX,
    KEY_FILE_PAUSE, KEYS_PER_FILE_MAX, LEEWAY, RSA_BITS, TOKEN_BYTES_MAX,
};
pub use not_proven::{Credential, NotProven, Reached};
pub use peer::Peer;
pub use process::process_of;
pub use proven::{BoundPod, Caller, Proven};
pub use prover::{Demand, Figures, Grace, Prover};
pub use source::Source;
