//! The authorities of the machine, for servers that are not the operator's: the stores of backups and
//! the collectors of traces.
//!
//! The authorities of the machine are trusted, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. A
//! machine that has none, as the image of Ringfence, trusts those of Mozilla, which are in the binary.

use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::builderstates::{WantsSchemes, WantsTlsConfig};

/// Who is trusted cannot be found out.
#[derive(Debug, thiserror::Error)]
#[error(
    "SSL_CERT_FILE and SSL_CERT_DIR name no certificate of an authority ({0}); name a PEM file that \
     this user may read, or unset them for the authorities of the machine"
)]
pub(crate) struct NoAuthorities(std::io::Error);

/// Who is trusted.
pub(crate) fn trusting() -> Result<HttpsConnectorBuilder<WantsSchemes>, NoAuthorities> {
    let builder = HttpsConnectorBuilder::<WantsTlsConfig>::new;
    match builder().with_native_roots() {
        Ok(tls) => Ok(tls),
        // What an operator has chosen is not replaced by something else.
        Err(error) if chosen() => Err(NoAuthorities(error)),
        Err(_) => Ok(builder().with_webpki_roots()),
    }
}

/// Whether the environment says who is trusted.
fn chosen() -> bool {
    ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}
