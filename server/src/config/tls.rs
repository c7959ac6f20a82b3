//! The files of TLS: what goes together, and whether it can be used.

use std::path::Path;

use ringfence_tls::{Acceptor, Part, Pem, ServerTls, TlsError};

use super::{ConfigError, Given};

/// The flags of one port.
pub(super) struct Flags {
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
    pub(super) ca: &'static str,
    /// Demands a certificate of callers; the HTTP port has no such flag, since probes show none.
    pub(super) demand: &'static str,
}

const CLIENT: Flags = Flags {
    certificate: "cert-file",
    key: "key-file",
    ca: "trusted-ca-file",
    demand: "client-cert-auth",
};

const HTTP: Flags = Flags {
    certificate: "http-cert-file",
    key: "http-key-file",
    ca: "http-trusted-ca-file",
    demand: "",
};

/// What was given for one port.
pub(super) struct Files<'a> {
    pub(super) certificate: Option<&'a Path>,
    pub(super) key: Option<&'a Path>,
    pub(super) ca: Option<&'a Path>,
    pub(super) demand: bool,
}

/// The TLS of the client port; `None` if it has none.
pub(super) fn of_clients(given: &Given) -> Result<Option<ServerTls>, ConfigError> {
    let files = Files {
        certificate: given.cert_file.as_deref(),
        key: given.key_file.as_deref(),
        ca: given.trusted_ca_file.as_deref(),
        demand: given.client_cert_auth.unwrap_or(false),
    };
    CLIENT.check(files)
}

/// The TLS of the HTTP port; `None` if it has none. It demands no certificate: probes show none.
pub(super) fn of_http(given: &Given) -> Result<Option<ServerTls>, ConfigError> {
    HTTP.check(Files {
        certificate: given.http_cert_file.as_deref(),
        key: given.http_key_file.as_deref(),
        ca: given.http_trusted_ca_file.as_deref(),
        demand: false,
    })
}

impl Flags {
    pub(super) fn check(&self, files: Files<'_>) -> Result<Option<ServerTls>, ConfigError> {
        let (certificate, key) = match (files.certificate, files.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(certificate), None) => {
                let allowed = format!("together with --{}, the key of the certificate", self.key);
                return Err(refused(self.certificate, certificate, allowed));
            }
            (None, Some(key)) => {
                let allowed = format!("together with --{}, whose key it is", self.certificate);
                return Err(refused(self.key, key, allowed));
            }
            (None, None) => return self.nothing_more(&files),
        };
        if files.demand && files.ca.is_none() {
            let allowed = format!(
                "true together with --{}, which says who signs the certificates that are demanded",
                self.ca
            );
            return Err(ConfigError::value(self.demand, "true", allowed));
        }
        let tls = ServerTls {
            certificate: Pem::from(certificate),
            key: Pem::from(key),
            client_ca: files.ca.map(Pem::from),
            demand_client_certificate: files.demand,
            peer_names: Vec::new(),
            admit_plain: false,
        };
        match Acceptor::new(tls.clone()) {
            Ok(_) => Ok(Some(tls)),
            Err(error) => Err(self.unusable(error)),
        }
    }

    /// A CA without a certificate would silently leave the port in plaintext: refuse it.
    fn nothing_more(&self, files: &Files<'_>) -> Result<Option<ServerTls>, ConfigError> {
        let allowed = format!(
            "together with --{} and --{}, without which the port has no TLS",
            self.certificate, self.key
        );
        match files.ca {
            Some(ca) => Err(refused(self.ca, ca, allowed)),
            None if files.demand => Err(ConfigError::value(self.demand, "true", allowed)),
            None => Ok(None),
        }
    }

    pub(super) fn unusable(&self, error: TlsError) -> ConfigError {
        ConfigError::Unusable {
            flag: match error.part {
                Part::Certificate | Part::ServerName => self.certificate,
                Part::Key => self.key,
                Part::Authority => self.ca,
                Part::PeerName => "peer-tls-name",
                Part::ClusterSecret => "cluster-secret-file",
            },
            offered: error.offered,
            why: error.why,
        }
    }
}

pub(super) fn refused(flag: &'static str, path: &Path, allowed: String) -> ConfigError {
    ConfigError::value(flag, path.display().to_string(), allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_testkit::certificates::Authority;

    use crate::config::tests::{config, refusal};

    #[test]
    fn without_files_there_is_no_tls() {
        assert_eq!(config("").client_tls, None);
    }

    #[test]
    fn what_belongs_together_is_demanded_together() {
        let cases = [
            (
                "--cert-file a",
                "--cert-file is `a`; allowed: together with --key-file",
            ),
            (
                "--key-file a",
                "--key-file is `a`; allowed: together with --cert-file",
            ),
            ("--trusted-ca-file a", "without which the port has no TLS"),
            (
                "--http-cert-file a",
                "--http-cert-file is `a`; allowed: together with --http-key-file",
            ),
            (
                "--http-trusted-ca-file a",
                "together with --http-cert-file and --http-key-file, without which the port has no TLS",
            ),
            ("--client-cert-auth", "without which the port has no TLS"),
            (
                "--client-cert-auth --cert-file a --key-file b",
                "--client-cert-auth is `true`; allowed: true together with --trusted-ca-file",
            ),
        ];
        for (line, expected) in cases {
            let refused = refusal(line);
            assert!(refused.contains(expected), "{line}: {refused}");
        }
    }

    #[test]
    fn files_are_read_once_to_tell_at_once_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let ours = Authority::new("ours");
        let ca = ours.save(folder.path(), "ca").display().to_string();
        let files = ours.sign(&["n1.example"]).save(folder.path(), "n1");
        let (cert, key) = (files.certificate.display(), files.key.display());

        let line = format!("--cert-file {cert} --key-file {key} --trusted-ca-file {ca}");
        let tls = config(&line).client_tls.expect("TLS");
        assert!(!tls.demand_client_certificate);
        let tls = config(&format!("{line} --client-cert-auth")).client_tls;
        assert!(tls.expect("TLS").demand_client_certificate);

        let cases = [
            (
                format!("--cert-file /nowhere/a.pem --key-file {key}"),
                "--cert-file is `/nowhere/a.pem`: it cannot be read".to_owned(),
            ),
            (
                format!("--cert-file {cert} --key-file {cert}"),
                format!("--key-file is `{cert}`: no key can be read from it"),
            ),
            (
                format!("--cert-file {cert} --key-file {key} --trusted-ca-file {key}"),
                format!("--trusted-ca-file is `{key}`: no certificate stands in it"),
            ),
        ];
        for (line, expected) in cases {
            let refused = refusal(&line);
            assert!(refused.contains(&expected), "{line}: {refused}");
        }
    }
}
