//! From PEM text to what a handshake needs.

use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::HTTP2;
use crate::error::{Part, TlsError};
use crate::peer_name::{DemandName, PeerName};
use crate::pem::Pem;

/// What a server shows and whom it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate, and the authorities between it and one that clients trust.
    pub certificate: Pem,
    /// The key of the certificate, not encrypted.
    pub key: Pem,
    /// Who signs the certificates of clients. A certificate that is shown has to be good.
    pub client_ca: Option<Pem>,
    /// Whether a client has to show a certificate.
    pub demand_client_certificate: bool,
    /// Names of which the certificate that a client shows has to have one; empty for any.
    pub peer_names: Vec<PeerName>,
    /// Whether HTTP/2 without TLS is let in beside it.
    pub admit_plain: bool,
}

/// Whom a client trusts and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Who signs the certificates of servers; at least one.
    pub ca: Vec<Pem>,
    /// The certificate to show when a server asks for one, and its key.
    pub certificate: Option<(Pem, Pem)>,
    /// The name that the certificates of servers must have, instead of the host that is connected
    /// to.
    pub server_name: Option<String>,
    /// Whether to connect without TLS where the other side proves to speak none: it answered the
    /// first message of a handshake with HTTP/2, or ended the connection without a word. Never
    /// when it is its certificate that is not good.
    pub fall_back_to_plain: bool,
}

impl ServerTls {
    /// Whether only those are let in who show a certificate with a name of peers.
    #[must_use]
    pub fn admits_peers_alone(&self) -> bool {
        self.demand_client_certificate && !self.peer_names.is_empty() && !self.admit_plain
    }

    pub(crate) fn sources(&self) -> Vec<Pem> {
        let files = [&self.certificate, &self.key];
        files.into_iter().chain(&self.client_ca).cloned().collect()
    }

    /// The other side has to speak one of `protocols` over the connection; the first one that it
    /// offers is chosen.
    pub(crate) fn config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions");
        let builder = match &self.client_ca {
            None if self.demand_client_certificate => {
                let why = "certificates of clients are demanded, so it must be said who signs them";
                return Err(TlsError::new(Part::Authority, "(none)", why));
            }
            None if !self.peer_names.is_empty() => {
                let why = "names are demanded, so it must be said who signs the certificates that \
                           have them";
                return Err(TlsError::new(Part::Authority, "(none)", why));
            }
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authorities(std::slice::from_ref(ca))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match self.demand_client_certificate {
                    true => verifier.build(),
                    false => verifier.allow_unauthenticated().build(),
                };
                let verifier = verifier
                    .map_err(|error| TlsError::new(Part::Authority, ca, error.to_string()))?;
                builder.with_client_cert_verifier(match self.peer_names.is_empty() {
                    true => verifier,
                    false => Arc::new(DemandName {
                        inner: verifier,
                        names: self.peer_names.clone(),
                    }),
                })
            }
        };
        let mut config = builder
            .with_single_cert(chain(&self.certificate)?, key(&self.key)?)
            .map_err(|error| unusable(&self.certificate, &self.key, &error))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ClientTls {
    pub(crate) fn sources(&self) -> Vec<Pem> {
        let own = self
            .certificate
            .iter()
            .flat_map(|(chain, key)| [chain, key]);
        self.ca.iter().chain(own).cloned().collect()
    }

    pub(crate) fn config(&self) -> Result<ClientConfig, TlsError> {
        if self.ca.is_empty() {
            let why = "name the CA that signed the servers' certificates; no other is trusted";
            return Err(TlsError::new(Part::Authority, "(none)", why));
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions")
            .with_root_certificates(authorities(&self.ca)?);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, of)) => builder
                .with_client_auth_cert(chain(certificate)?, key(of)?)
                .map_err(|error| unusable(certificate, of, &error))?,
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Named, not the process's default: a program may have another one for its own purposes.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn chain(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates(
        pem,
        Part::Certificate,
        "its own certificate first, then those that signed it",
    )
}

fn authorities(sources: &[Pem]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for pem in sources {
        for certificate in certificates(pem, Part::Authority, "the certificate of the CA")? {
            let added = roots.add(certificate);
            added.map_err(|error| {
                let why = format!("a certificate in it is no CA's: {error}");
                TlsError::new(Part::Authority, pem, why)
            })?;
        }
    }
    Ok(roots)
}

fn certificates(
    pem: &Pem,
    part: Part,
    expected: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(pem, part)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match parsed {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => {
            let why = format!("no certificate stands in it; expected PEM text with {expected}");
            Err(TlsError::new(part, pem, why))
        }
        Err(error) => {
            let why = format!("no PEM text: {error}; expected {expected}");
            Err(TlsError::new(part, pem, why))
        }
    }
}

fn key(pem: &Pem) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(pem, Part::Key)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let why = format!(
            "no key can be read from it: {error}; expected PEM text with a private key that is not \
             encrypted"
        );
        TlsError::new(Part::Key, pem, why)
    })
}

fn read(pem: &Pem, part: Part) -> Result<Vec<u8>, TlsError> {
    pem.read().map_err(|error| {
        TlsError::new(
            part,
            pem,
            format!(
                "it cannot be read: {error}; {}",
                crate::pem::next_step(&error, "expected a PEM file")
            ),
        )
    })
}

fn unusable(certificate: &Pem, key: &Pem, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("it is not the key of the certificate {certificate}");
            TlsError::new(Part::Key, key, why)
        }
        rustls::Error::InvalidCertificate(fault) => {
            TlsError::new(Part::Certificate, certificate, fault.to_string())
        }
        // A key is looked at before its certificate.
        other => TlsError::new(Part::Key, key, other.to_string()),
    }
}
