//! Whom a client trusts, and what it shows.

use std::path::PathBuf;

use ringfence_tls::{ClientTls, Connector, Pem};

use crate::transport::endpoint::{ENCRYPTED, PLAIN};
use crate::transport::error::ConnectError;

/// TLS of a client: whom it trusts, and what it shows.
///
/// Nothing is trusted but the authorities named here; the machine's own list is not asked.
/// Files are read again for the next connection once they have changed.
///
/// ```no_run
/// use ringfence_client::{Client, Tls};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::new()
///     .ca_file("/etc/ringfence/ca.pem")
///     .certificate_files("/etc/ringfence/billing.pem", "/etc/ringfence/billing.key");
/// let client = Client::builder()
///     .endpoints(["https://n1.example:7420", "https://n2.example:7420"])
///     .tls(tls)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until it is given to ClientBuilder::tls"]
pub struct Tls(ClientTls);

impl Tls {
    /// TLS that trusts no CA yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in a PEM file, besides those named before.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        self.ca(Pem::File(path.into()))
    }

    /// Trusts the authorities in a PEM text, besides those named before.
    pub fn ca_pem(self, text: impl AsRef<[u8]>) -> Self {
        self.ca(Pem::Text(text.as_ref().into()))
    }

    /// The certificate to show to servers that ask for one, and its key, in PEM files. Those that
    /// signed it follow in the file of the certificate.
    pub fn certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.0.certificate = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// The certificate to show to servers that ask for one, and its key, as PEM text.
    pub fn certificate_pem(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let text = |text: &[u8]| Pem::Text(text.into());
        self.0.certificate = Some((text(certificate.as_ref()), text(key.as_ref())));
        self
    }

    /// The name that the servers' certificates must have, instead of the host of each endpoint.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.0.server_name = Some(name.into());
        self
    }

    fn ca(mut self, pem: Pem) -> Self {
        self.0.ca.push(pem);
        self
    }
}

/// What connects to these endpoints; `None` if they are connected to without TLS. A client does
/// the one or the other: what it was given once must not be undone by an address.
pub(crate) fn connector(
    endpoints: &[String],
    tls: Option<Tls>,
) -> Result<Option<Connector>, ConnectError> {
    let begins = |scheme| {
        endpoints
            .iter()
            .find(|text| text.trim().starts_with(scheme))
    };
    let encrypted = begins(ENCRYPTED);
    if tls.is_none() && encrypted.is_none() {
        return Ok(None);
    }
    if let Some(plain) = begins(PLAIN) {
        let fault = match tls {
            Some(_) => "http:// is without TLS, but TLS was set up",
            None => "http:// is without TLS, but another endpoint is https://",
        };
        return Err(ConnectError::InvalidEndpoint {
            offered: plain.clone(),
            fault,
        });
    }
    let Tls(tls) = tls.unwrap_or_default();
    let connector = Connector::new(tls).map_err(|error| ConnectError::Tls {
        why: error.to_string(),
    })?;
    Ok(Some(connector))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refusal(endpoints: &[&str], tls: Option<Tls>) -> String {
        let endpoints: Vec<String> = endpoints.iter().map(|text| (*text).to_owned()).collect();
        connector(&endpoints, tls).err().unwrap().to_string()
    }

    #[test]
    fn without_a_word_of_it_there_is_no_tls() {
        let endpoints = ["a:1".to_owned(), "http://b:1".to_owned()];
        assert!(connector(&endpoints, None).unwrap().is_none());
    }

    #[test]
    fn an_address_does_not_undo_what_was_set_up() {
        let refused = refusal(&["a:1", "http://b:1"], Some(Tls::new()));
        assert!(refused.contains("TLS was set up"), "{refused}");
        let refused = refusal(&["https://a:1", "http://b:1"], None);
        assert!(
            refused.contains("another endpoint is https://"),
            "{refused}"
        );
    }

    #[test]
    fn an_encrypted_address_needs_an_authority() {
        let refused = refusal(&["https://a:1"], None);
        assert!(refused.contains("name the CA"), "{refused}");
        let refused = refusal(&["a:1"], Some(Tls::new().ca_file("/nowhere/ca.pem")));
        assert!(
            refused.contains("CA /nowhere/ca.pem: it cannot be read"),
            "{refused}"
        );
    }
}
