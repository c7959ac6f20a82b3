//! What a node knows of a connection before a request comes.

use crate::certificate::{CertificateKind, FromCertificate};
use crate::failures::Failures;
use crate::limits::FAILED_PROOFS_PER_CONNECTION;
use crate::not_proven::NotProven;
use crate::proven::Proven;
use crate::source::Source;
use ringfence_core::Principal;

/// A connection: what it shows, and how many proofs have failed on it. It is made once, when the
/// connection is accepted, by [`Prover::peer`](crate::Prover::peer).
#[derive(Debug)]
pub struct Peer {
    shown: Shown,
    failures: Failures,
    source: Option<Source>,
}

#[derive(Debug)]
enum Shown {
    /// The caller could open the admin socket.
    AdminSocket,
    /// A certificate that was verified in the handshake.
    Certificate(Box<Result<FromCertificate, NotProven>>),
    /// Nothing that counts.
    Nothing,
}

impl Peer {
    /// A connection by the admin socket of the node.
    #[must_use]
    pub fn admin_socket() -> Self {
        Self::showing(Shown::AdminSocket)
    }

    /// A connection that shows nothing.
    #[must_use]
    pub fn bare() -> Self {
        Self::showing(Shown::Nothing)
    }

    /// A connection with these certificates (DER), the caller's own first.
    pub(crate) fn with(certificates: &[impl AsRef<[u8]>], kind: Option<CertificateKind>) -> Self {
        match (certificates.first(), kind) {
            (Some(own), Some(kind)) => {
                let read = FromCertificate::read(own.as_ref(), kind);
                Self::showing(Shown::Certificate(Box::new(read)))
            }
            _ => Self::bare(),
        }
    }

    /// Whether the caller came by the admin socket.
    #[must_use]
    pub fn is_admin_socket(&self) -> bool {
        matches!(self.shown, Shown::AdminSocket)
    }

    fn showing(shown: Shown) -> Self {
        Self {
            shown,
            failures: Failures::at_most(FAILED_PROOFS_PER_CONNECTION),
            source: None,
        }
    }

    /// The same, and where it comes from.
    #[must_use]
    pub fn from_source(mut self, source: Option<Source>) -> Self {
        self.source = source;
        self
    }

    /// Where it comes from, if that is known.
    #[must_use]
    pub const fn source(&self) -> Option<Source> {
        self.source
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The caller, by what the connection shows.
    pub(crate) fn proven(&self, now: u64) -> Result<Proven, NotProven> {
        match &self.shown {
            Shown::AdminSocket => Ok(Proven::of(Principal::local())),
            Shown::Certificate(read) => match read.as_ref() {
                Ok(certificate) => certificate.proven(now),
                Err(not) => Err(not.clone()),
            },
            Shown::Nothing => Ok(Proven::of(Principal::anonymous())),
        }
    }
}
