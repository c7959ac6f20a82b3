//! Who calls is proven, or refused: each credential with keys of its own, and what attackers make
//! of it.
//!
//! Two attacks on the contract of rights are proven here by name:
//!
//! | attack | tests |
//! |---|---|
//! | names that match what they should not: subjects with `/ .. * \|`, a common name posing as a URI, two names in a certificate, two issuers with one subject, 256 bytes | `attack_9_…` |
//! | JWTs: no algorithm, HMAC with a public key, keys that the token brings, random key ids, no audience, no end, an end within a stream, key files that are gone | `attack_10_…` |

#![allow(clippy::unwrap_used)]

mod algorithms;
mod certificates;
mod claims;
mod cluster_tokens;
mod ends;
mod floods;
mod headers;
mod issuers;
mod key_files;
mod rules;
mod service_accounts;
mod subjects;
mod support;
mod text;
