//! Which of the certificates of an authority are those of peers.
//!
//! An authority may sign certificates of clients, too. A verifier that stands before the usual one
//! demands a name, so that a client's certificate opens no port of peers.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use webpki::EndEntityCert;

use crate::error::{Part, TlsError};

/// The most names of peers that a port knows.
pub const PEER_NAMES_MAX: usize = 64;
/// The most names of a certificate that an error lists.
const NAMES_TOLD_MAX: usize = 8;

/// What the certificate of a peer has among its alternative names: a DNS name, an IP address, or
/// `*.` and a domain, which stands for every name with one label more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Exact(ServerName<'static>),
    /// A dot and the domain, in lower case.
    Below(String),
}

impl PeerName {
    /// Parses a name; it is compared without regard to upper and lower case.
    ///
    /// # Errors
    /// [`TlsError`] with [`Part::PeerName`] if it is neither a DNS name, nor an IP address, nor
    /// `*.` and a DNS name.
    pub fn parse(raw: &str) -> Result<Self, TlsError> {
        let refused = || {
            let why = "no certificate can have it; expected a DNS name, an IP address, or `*.` and \
                       a domain of at least two labels";
            TlsError::new(Part::PeerName, format!("{raw:?}"), why)
        };
        let below = raw.strip_prefix("*.");
        let name = below.unwrap_or(raw).to_ascii_lowercase();
        let parsed = ServerName::try_from(name.clone()).map_err(|_| refused())?;
        let kind = match (below, &parsed) {
            (None, _) => Kind::Exact(parsed),
            (Some(_), ServerName::DnsName(_)) if name.trim_end_matches('.').contains('.') => {
                Kind::Below(format!(".{name}"))
            }
            (Some(_), _) => return Err(refused()),
        };
        Ok(Self {
            text: raw.to_owned(),
            kind,
        })
    }

    fn is_of(&self, parsed: &ParsedCertificate<'_>, names: &[&str]) -> bool {
        match &self.kind {
            Kind::Exact(name) => verify_server_name(parsed, name).is_ok(),
            Kind::Below(domain) => names.iter().any(|name| is_below(name, domain)),
        }
    }
}

/// Whether a name, or a wildcard, has one label before the domain, which begins with a dot.
fn is_below(name: &str, domain: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let label = name.strip_suffix(domain);
    label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A certificate that is good, and is not a peer's.
#[derive(Debug)]
pub(crate) struct NoPeer {
    has: Vec<String>,
    demanded: String,
}

impl fmt::Display for NoPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = match self.has.is_empty() {
            true => "no DNS name".to_owned(),
            false => self.has.join(", "),
        };
        write!(
            f,
            "it is not a peer's: it has {has}, and a peer has {}",
            self.demanded
        )
    }
}

impl std::error::Error for NoPeer {}

/// Demands a name of what another verifier has found good.
#[derive(Debug)]
pub(crate) struct DemandName {
    pub(crate) inner: Arc<dyn ClientCertVerifier>,
    /// At least one.
    pub(crate) names: Vec<PeerName>,
}

impl DemandName {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let shown = EndEntityCert::try_from(certificate).map_err(bad)?;
        let names: Vec<&str> = shown.valid_dns_names().collect();
        if self.names.iter().any(|name| name.is_of(&parsed, &names)) {
            return Ok(());
        }
        let demanded: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        let has = names.into_iter().take(NAMES_TOLD_MAX).map(str::to_owned);
        let why = NoPeer {
            has: has.collect(),
            demanded: demanded.join(" or "),
        };
        let other = OtherError(Arc::new(why));
        Err(CertificateError::Other(other).into())
    }
}

impl ClientCertVerifier for DemandName {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        self.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_no_certificate_can_have_is_no_name() {
        for raw in [
            "n1.example",
            "10.0.0.1",
            "::1",
            "*.peers.example",
            "N1.Example",
        ] {
            assert_eq!(PeerName::parse(raw).unwrap().to_string(), raw);
        }
        for raw in [
            "",
            "*",
            "*.",
            "*.example",
            "*.10.0.0.1",
            "n*.example.org",
            "*.*.example.org",
            "a b",
            "https://n1",
            "n1:7421",
        ] {
            let refused = PeerName::parse(raw).unwrap_err();
            assert_eq!(refused.part, Part::PeerName, "{raw}");
            assert!(refused.to_string().contains("expected a DNS name"), "{raw}");
        }
    }

    #[test]
    fn a_star_stands_for_exactly_one_label() {
        for name in ["n1.peers.example", "N1.PEERS.example", "*.peers.example"] {
            assert!(is_below(name, ".peers.example"), "{name}");
        }
        for name in [
            "peers.example",
            ".peers.example",
            "a.b.peers.example",
            "n1peers.example",
        ] {
            assert!(!is_below(name, ".peers.example"), "{name}");
        }
    }
}
