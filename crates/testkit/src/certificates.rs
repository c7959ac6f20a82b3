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

/// When a certificate is good.
#[derive(Clone, Copy, Debug)]
enum Times {
    Always,
    Ended,
    Future,
}

impl Times {
    fn set(self, params: &mut CertificateParams) {
        let (from, until) = match self {
            Self::Always => (1975, 4096),
            Self::Ended => (2019, 2020),
            Self::Future => (2090, 4096),
        };
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
    }
}

impl Authority {
    /// A new one, with a key of its own.
    ///
    /// # Panics
    /// Never: what it is made of is fixed.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with(name, CertificateParams::default())
    }

    /// One whose own certificate was good until 2020.
    ///
    /// # Panics
    /// Never: what it is made of is fixed.
    #[must_use]
    pub fn ended(name: &str) -> Self {
        let mut params = CertificateParams::default();
        Times::Ended.set(&mut params);
        Self::with(name, params)
    }

    fn with(name: &str, mut params: CertificateParams) -> Self {
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
        self.issue(names, Times::Always)
    }

    /// One that was good until 2020.
    #[must_use]
    pub fn sign_expired(&self, names: &[&str]) -> Signed {
        self.issue(names, Times::Ended)
    }

    /// One that is good from 2090 only.
    #[must_use]
    pub fn sign_future(&self, names: &[&str]) -> Signed {
        self.issue(names, Times::Future)
    }

    fn issue(&self, names: &[&str], times: Times) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names that a certificate can have");
        times.set(&mut params);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.issuer);
        Signed {
            certificate: certificate.expect("complete parameters").pem(),
            key: key.serialize_pem(),
        }
    }

    /// Its key, as PEM text: for other programs that sign with it.
    #[must_use]
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
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
