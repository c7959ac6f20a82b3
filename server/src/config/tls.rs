//! The files of TLS: what goes together, and whether it can be used.

use std::path::Path;

use ringfence_tls::{Acceptor, PEER_NAMES_MAX, Part, PeerName, Pem, ServerTls, TlsError};

use super::{ConfigError, Given};

/// The flags of one port.
struct Flags {
    certificate: &'static str,
    key: &'static str,
    ca: &'static str,
    demand: &'static str,
}

const CLIENT: Flags = Flags {
    certificate: "cert-file",
    key: "key-file",
    ca: "trusted-ca-file",
    demand: "client-cert-auth",
};

const PEER: Flags = Flags {
    certificate: "peer-cert-file",
    key: "peer-key-file",
    ca: "peer-trusted-ca-file",
    demand: "peer-client-cert-auth",
};

/// What was given for one port.
struct Files<'a> {
    certificate: Option<&'a Path>,
    key: Option<&'a Path>,
    ca: Option<&'a Path>,
    demand: bool,
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

/// The TLS between nodes; `None` if there is none.
pub(super) fn of_peers(given: &Given) -> Result<Option<ServerTls>, ConfigError> {
    let names = peer_names(&given.peer_tls_name)?;
    if !names.is_empty() && given.peer_client_cert_auth == Some(false) {
        let allowed = "true together with --peer-tls-name, which demands a certificate";
        return Err(ConfigError::value(PEER.demand, "false", allowed));
    }
    let files = Files {
        certificate: given.peer_cert_file.as_deref(),
        key: given.peer_key_file.as_deref(),
        ca: given.peer_trusted_ca_file.as_deref(),
        demand: given.peer_client_cert_auth.unwrap_or(false),
    };
    if files.certificate.is_none() && !names.is_empty() {
        let allowed = "together with --peer-cert-file, --peer-key-file and --peer-trusted-ca-file, \
                       without which the port has no TLS";
        let offered = given.peer_tls_name.join(",");
        return Err(ConfigError::value(PEER_NAME, offered, allowed));
    }
    if let (Some(certificate), None) = (files.certificate, files.ca) {
        let allowed = "together with --peer-trusted-ca-file, by which nodes know each other";
        return Err(refused(PEER.certificate, certificate, allowed.to_owned()));
    }
    let tls = PEER.check(files)?;
    Ok(tls.map(|tls| ServerTls {
        demand_client_certificate: tls.demand_client_certificate || !names.is_empty(),
        peer_names: names,
        ..tls
    }))
}

const PEER_NAME: &str = "peer-tls-name";

/// The names of nodes, parsed.
fn peer_names(raw: &[String]) -> Result<Vec<PeerName>, ConfigError> {
    if raw.len() > PEER_NAMES_MAX {
        let allowed = format!("at most {PEER_NAMES_MAX} names; `*.` and a domain stands for many");
        let offered = format!("{} names", raw.len());
        return Err(ConfigError::value(PEER_NAME, offered, allowed));
    }
    let names = raw.iter().map(|name| PeerName::parse(name));
    let names: Result<_, TlsError> = names.collect();
    names.map_err(|error| PEER.unusable(error))
}

impl Flags {
    fn check(&self, files: Files<'_>) -> Result<Option<ServerTls>, ConfigError> {
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

    fn unusable(&self, error: TlsError) -> ConfigError {
        ConfigError::Unusable {
            flag: match error.part {
                Part::Certificate | Part::ServerName => self.certificate,
                Part::Key => self.key,
                Part::Authority => self.ca,
                Part::PeerName => PEER_NAME,
            },
            offered: error.offered,
            why: error.why,
        }
    }
}

fn refused(flag: &'static str, path: &Path, allowed: String) -> ConfigError {
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
    fn nodes_have_to_know_each_other() {
        let refused = refusal("--peer-cert-file a --peer-key-file b");
        assert!(
            refused.contains("--peer-trusted-ca-file, by which"),
            "{refused}"
        );
        let refused = refusal("--peer-client-cert-auth");
        assert!(
            refused.contains("--peer-cert-file and --peer-key-file"),
            "{refused}"
        );
        assert_eq!(config("").peer_tls, None);
    }

    #[test]
    fn names_of_nodes_demand_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let ours = Authority::new("ours");
        let ca = ours.save(folder.path(), "ca").display().to_string();
        let files = ours.sign(&["n1.example"]).save(folder.path(), "n1");
        let (cert, key) = (files.certificate.display(), files.key.display());
        let line =
            format!("--peer-cert-file {cert} --peer-key-file {key} --peer-trusted-ca-file {ca}");

        let tls = config(&line).peer_tls.expect("TLS");
        assert!(!tls.admits_peers_alone());
        let named = config(&format!(
            "{line} --peer-tls-name n1.example,*.peers.example"
        ));
        let tls = named.peer_tls.expect("TLS");
        assert!(tls.admits_peers_alone());
        assert_eq!(tls.peer_names.len(), 2);

        let cases = [
            (
                "--peer-tls-name n1.example".to_owned(),
                "--peer-tls-name is `n1.example`; allowed: together with --peer-cert-file",
            ),
            (
                format!("{line} --peer-tls-name n1.example --peer-client-cert-auth=false"),
                "--peer-client-cert-auth is `false`; allowed: true together with --peer-tls-name",
            ),
            (
                format!("{line} --peer-tls-name n1:7421"),
                "--peer-tls-name is `\"n1:7421\"`: no certificate can have it; expected a DNS name",
            ),
        ];
        for (line, expected) in cases {
            let refused = refusal(&line);
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
