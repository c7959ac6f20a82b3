//! What is wrong with what was given for TLS.

use std::fmt;

/// Something that was given for TLS and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} {offered}: {why}")]
pub struct TlsError {
    /// The certificate, the key, the authority or the name.
    pub part: Part,
    /// What was given: a path, as a rule.
    pub offered: String,
    /// What is wrong with it, and what is allowed.
    pub why: String,
}

/// What a [`TlsError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The certificate that this side shows.
    Certificate,
    /// The key of that certificate.
    Key,
    /// The authorities whose certificates this side trusts.
    Authority,
    /// The name that the other side's certificate has to have.
    ServerName,
    /// A name that the certificates of peers have.
    PeerName,
    /// The secret that nodes make their certificates from.
    ClusterSecret,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::Authority => "CA",
            Self::ServerName => "server name",
            Self::PeerName => "peer name",
            Self::ClusterSecret => "cluster secret",
        })
    }
}

impl TlsError {
    pub(crate) fn new(part: Part, offered: impl fmt::Display, why: impl Into<String>) -> Self {
        Self {
            part,
            offered: offered.to_string(),
            why: why.into(),
        }
    }
}
