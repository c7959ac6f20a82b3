//! For how long the certificates of the ports are valid.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ringfence_access::Validity;
use ringfence_tls::{Pem, ServerTls};

use crate::config::Config;

/// The most bytes that are read of a file; what a port reads of one is no more.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The certificates in files that this node shows, each with the port that shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificates(Vec<(&'static str, Pem)>);

impl Certificates {
    /// Those of a configuration. A node that makes its own from a secret has none that ends.
    pub(crate) fn of(config: &Config) -> Self {
        let peer = config.peer_tls.as_ref().map(|tls| &tls.accept);
        let ports: [(&'static str, Option<&ServerTls>); 3] = [
            ("client", config.client_tls.as_ref()),
            ("http", config.http_tls.as_ref()),
            ("peer", peer),
        ];
        let shown = ports.into_iter();
        let shown = shown.filter_map(|(port, tls)| Some((port, tls?.certificate.clone())));
        Self(shown.collect())
    }

    /// For how many seconds from `now`, in seconds since 1970, the first of a port's certificates to end
    /// is valid, 0 after its end and while one of them is not valid yet. A file that cannot be read is
    /// left out: its port shows what it could read last.
    pub(super) fn remaining(&self, now: u64) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().filter_map(move |(port, pem)| {
            let Pem::File(path) = pem else { return None };
            let validities = validities(path).ok()?;
            let end = validities.iter().map(|validity| validity.until).min()?;
            let begun = validities.iter().all(|validity| validity.from <= now);
            Some((*port, if begun { end.saturating_sub(now) } else { 0 }))
        })
    }
}

/// From when until when the certificates in a file are valid; none if it has none.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn validities(path: &Path) -> io::Result<Vec<Validity>> {
    let mut text = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut text)?;
    Ok(Validity::in_pem(&text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_testkit::certificates::Authority;

    use super::*;

    /// What rcgen writes if no end is asked for, 4096-01-01.
    const FAR: u64 = 67_090_118_400;

    fn remaining(text: &str, now: u64) -> Vec<(&'static str, u64)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.pem");
        std::fs::write(&path, text).unwrap();
        let certificates = Certificates(vec![("client", path.into())]);
        certificates.remaining(now).collect()
    }

    #[test]
    fn a_chain_is_valid_until_its_first_end() {
        let authority = Authority::new("ca");
        let signed = authority.sign(&["localhost"]);
        let now = FAR - 90;
        assert_eq!(remaining(&signed.certificate, now), [("client", 90)]);
        let expired = authority.sign_expired(&["localhost"]).certificate;
        let chain = format!("{}{expired}{}", signed.certificate, authority.pem());
        assert_eq!(remaining(&chain, now), [("client", 0)]);
        // It is of no use before it begins.
        let future = authority.sign_future(&["localhost"]).certificate;
        assert_eq!(remaining(&future, 1_000), [("client", 0)]);
        assert_eq!(remaining(&future, now), [("client", 90)]);
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let now = 1_000;
        assert_eq!(remaining("", now), []);
        let key = Authority::new("ca").sign(&["localhost"]).key;
        assert_eq!(remaining(&key, now), []);
        let broken = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
        assert_eq!(remaining(broken, now), []);
        let absent = Certificates(vec![("peer", Path::new("/nowhere/n1.pem").into())]);
        assert_eq!(absent.remaining(now).count(), 0);
    }
}
