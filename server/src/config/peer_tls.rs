//! TLS between nodes: by files with certificates, or by a secret of the cluster.

use ringfence_tls::{
    CLUSTER_SECRETS_MAX, ClientTls, ClusterSecret, PEER_NAMES_MAX, PeerName, ServerTls, TlsError,
};

use super::given::PeerTlsMode;
use super::tls::{Files, Flags, refused};
use super::{ConfigError, Given};

const PEER: Flags = Flags {
    certificate: "peer-cert-file",
    key: "peer-key-file",
    ca: "peer-trusted-ca-file",
    demand: "peer-client-cert-auth",
};
const PEER_NAME: &str = "peer-tls-name";
const SECRET: &str = "cluster-secret-file";

/// Both sides of the handshakes between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTls {
    /// For nodes that connect to this one.
    pub(crate) accept: ServerTls,
    /// For those that this one connects to.
    pub(crate) connect: ClientTls,
    /// The CAs of the cluster's secrets, by their fingerprints, the one in use first; none with
    /// files of certificates.
    pub(crate) secrets: Vec<String>,
}

impl NodeTls {
    /// Whether nodes without TLS are let in, and connected to, as well.
    pub(crate) fn is_permissive(&self) -> bool {
        self.accept.admit_plain
    }
}

/// The TLS between nodes; `None` if there is none.
pub(super) fn of_peers(given: &Given) -> Result<Option<NodeTls>, ConfigError> {
    let found = match given.cluster_secret_file.is_empty() {
        true => by_files(given)?,
        false => Some(by_secret(given)?),
    };
    match (found, given.peer_tls_mode) {
        (None, Some(mode)) => {
            let allowed = "together with --cluster-secret-file or --peer-cert-file, without which \
                           the port has no TLS";
            Err(ConfigError::value("peer-tls-mode", mode.as_str(), allowed))
        }
        (None, None) => Ok(None),
        (Some(mut tls), mode) => {
            let permissive = mode == Some(PeerTlsMode::Permissive);
            tls.accept.admit_plain = permissive;
            tls.connect.fall_back_to_plain = permissive;
            Ok(Some(tls))
        }
    }
}

/// The certificates that the node makes from the secret.
fn by_secret(given: &Given) -> Result<NodeTls, ConfigError> {
    let files = &given.cluster_secret_file;
    let shown: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let alone = |other: &str| {
        let allowed = format!("without --{other}: from the secret the node makes its certificate");
        ConfigError::value(SECRET, shown.join(","), allowed)
    };
    let others = [
        (PEER.certificate, &given.peer_cert_file),
        (PEER.key, &given.peer_key_file),
        (PEER.ca, &given.peer_trusted_ca_file),
    ];
    if let Some((other, _)) = others.into_iter().find(|(_, file)| file.is_some()) {
        return Err(alone(other));
    }
    if !given.peer_tls_name.is_empty() {
        return Err(alone(PEER_NAME));
    }
    if given.peer_client_cert_auth == Some(false) {
        return Err(alone("peer-client-cert-auth=false"));
    }
    if files.len() > CLUSTER_SECRETS_MAX {
        let allowed = format!(
            "at most {CLUSTER_SECRETS_MAX} files: the secret in use, and its successor or \
             predecessor"
        );
        let offered = format!("{} files", files.len());
        return Err(ConfigError::value(SECRET, offered, allowed));
    }
    let secrets = files.iter().map(|file| ClusterSecret::read(file));
    let secrets: Result<Vec<_>, TlsError> = secrets.collect();
    let secrets = secrets.map_err(|error| PEER.unusable(error))?;
    if let [one, other] = secrets.as_slice()
        && one == other
    {
        let allowed = "two files with different secrets, or one";
        return Err(ConfigError::value(SECRET, shown.join(","), allowed));
    }
    let (accept, connect) = ClusterSecret::node(&secrets);
    let secrets = secrets.iter().map(|secret| secret.fingerprint().to_owned());
    Ok(NodeTls {
        accept,
        connect,
        secrets: secrets.collect(),
    })
}

/// The certificates that were given. Nodes show the same one on both sides, and trust the same
/// authorities.
fn by_files(given: &Given) -> Result<Option<NodeTls>, ConfigError> {
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
    let Some(mut accept) = PEER.check(files)? else {
        return Ok(None);
    };
    accept.demand_client_certificate |= !names.is_empty();
    accept.peer_names = names;
    let connect = ClientTls {
        ca: accept.client_ca.iter().cloned().collect(),
        certificate: Some((accept.certificate.clone(), accept.key.clone())),
        server_name: None,
        fall_back_to_plain: false,
    };
    Ok(Some(NodeTls {
        accept,
        connect,
        secrets: Vec::new(),
    }))
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use ringfence_testkit::certificates::Authority;
    use tempfile::TempDir;

    use crate::config::tests::{config, refusal};

    /// The path of a file with a secret that differs from others by this byte.
    fn secret(folder: &TempDir, byte: u8) -> String {
        let path = folder.path().join(format!("{byte}.secret"));
        let random: Vec<String> = (byte..byte + 32)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        std::fs::write(&path, random.concat()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        path.display().to_string()
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

        let tls = config(&line).peer_tls.expect("TLS").accept;
        assert!(!tls.admits_peers_alone());
        let named = config(&format!(
            "{line} --peer-tls-name n1.example,*.peers.example"
        ));
        let tls = named.peer_tls.expect("TLS").accept;
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
    fn a_secret_makes_a_port_that_admits_peers_alone() {
        let folder = TempDir::new().unwrap();
        let (one, two) = (secret(&folder, 1), secret(&folder, 2));
        let line = format!("--cluster-secret-file {one} --access enforced");
        let tls = config(&line).peer_tls.expect("TLS");
        assert!(tls.accept.admits_peers_alone() && !tls.is_permissive());
        let both = format!("{line} --cluster-secret-file {two}");
        let both = config(&both).peer_tls.expect("TLS");
        assert_eq!(
            (both.secrets.len(), &both.secrets[..1]),
            (2, &tls.secrets[..])
        );
        assert_ne!(both.secrets[0], both.secrets[1]);

        let cases = [
            (
                format!("{line} --peer-cert-file a --peer-key-file b"),
                format!("--cluster-secret-file is `{one}`; allowed: without --peer-cert-file"),
            ),
            (
                format!("{line} --peer-trusted-ca-file a"),
                "allowed: without --peer-trusted-ca-file".to_owned(),
            ),
            (
                format!("{line} --peer-tls-name a.example"),
                "allowed: without --peer-tls-name".to_owned(),
            ),
            (
                format!("{line} --peer-client-cert-auth=false"),
                "allowed: without --peer-client-cert-auth=false".to_owned(),
            ),
            (
                format!("{line} --cluster-secret-file {one}"),
                "allowed: two files with different secrets".to_owned(),
            ),
            (
                format!("{line} --cluster-secret-file {two},{one}"),
                "--cluster-secret-file is `3 files`; allowed: at most 2 files".to_owned(),
            ),
            (
                "--cluster-secret-file /nowhere/a".to_owned(),
                "--cluster-secret-file is `/nowhere/a`: it cannot be read".to_owned(),
            ),
        ];
        for (line, expected) in cases {
            let refused = refusal(&line);
            assert!(refused.contains(&expected), "{line}: {refused}");
        }
    }

    #[test]
    fn a_port_that_admits_plaintext_is_not_authenticated() {
        let folder = TempDir::new().unwrap();
        let line = format!("--cluster-secret-file {}", secret(&folder, 1));
        let permissive = format!("{line} --peer-tls-mode permissive");
        let tls = config(&permissive).peer_tls.expect("TLS");
        assert!(tls.is_permissive() && tls.connect.fall_back_to_plain);
        assert!(!tls.accept.admits_peers_alone());
        let refused = refusal(&format!("{permissive} --access enforced"));
        assert!(refused.contains("--peer-tls-mode permissive"), "{refused}");
        let required = format!("{line} --peer-tls-mode required --access enforced");
        assert!(!config(&required).peer_tls.expect("TLS").is_permissive());

        let refused = refusal("--peer-tls-mode permissive");
        let expected =
            "--peer-tls-mode is `permissive`; allowed: together with --cluster-secret-file";
        assert!(refused.contains(expected), "{refused}");
    }
}
