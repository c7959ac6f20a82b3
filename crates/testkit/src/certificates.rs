//! Certificates of an authority that lives as long as a test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM text.
#[derive(Clone)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// The paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct SignedFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one, with a key of its own.
    ///
    /// # Panics
    /// Never: what it is made of is fixed.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.self_signed(&key).expect("complete parameters");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Its own certificate, as PEM text.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for names and addresses; for a client none is needed.
    #[must_use]
    pub fn sign(&self, names: &[&str]) -> Signed {
        self.issue(names, false)
    }

    /// One that was good until 2020.
    #[must_use]
    pub fn sign_expired(&self, names: &[&str]) -> Signed {
        self.issue(names, true)
    }

    fn issue(&self, names: &[&str], expired: bool) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names that a certificate can have");
        if expired {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.issuer);
        Signed {
            certificate: certificate.expect("complete parameters").pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes its own certificate into a folder.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn save(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(format!("{name}.pem"));
        fs::write(&path, &self.pem).expect("a writable folder");
        path
    }
}

impl Signed {
    /// Writes both into a folder, over what stands there under that name.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn save(&self, folder: &Path, name: &str) -> SignedFiles {
        let files = SignedFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, &self.certificate).expect("a writable folder");
        fs::write(&files.key, &self.key).expect("a writable folder");
        files
    }
}
