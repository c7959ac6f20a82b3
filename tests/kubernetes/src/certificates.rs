//! An authority of one run, and what it signs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256};

/// The names by which Pods and tests reach the API server.
const SERVER_NAMES: [&str; 6] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Files of an API server.
pub(crate) struct Certificates {
    /// Who signed the server's certificate.
    pub(crate) authority: String,
    pub(crate) server: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) accounts: PathBuf,
    pub(crate) accounts_key: PathBuf,
}

impl Certificates {
    /// Makes them in a folder.
    pub(crate) fn make(folder: &Path) -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = key()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let names = SERVER_NAMES.map(str::to_owned).to_vec();
        let server_key = key()?;
        let server = CertificateParams::new(names)?.signed_by(&server_key, &issuer)?;
        let accounts = key()?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            let written: io::Result<()> = fs::write(&path, text);
            written.expect("a temporary folder can be written");
            path
        };
        Ok(Self {
            authority: authority_pem,
            server: write("server.crt", server.pem()),
            server_key: write("server.key", server_key.serialize_pem()),
            accounts: write("accounts.pub", accounts.public_key_pem()),
            accounts_key: write("accounts.key", accounts.serialize_pem()),
        })
    }
}

fn key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}
