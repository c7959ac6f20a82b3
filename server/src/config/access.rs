//! How callers are proven.

use std::net::SocketAddr;

use ringfence_access::{
    CertificateKind, Credentials, FAILED_PROOFS_PER_SOURCE, Issuer, IssuerKind,
};

use super::electors::Electors;
use super::given::Given;
use super::range::in_range;
use super::{ConfigError, NodeTls};
use ringfence_core::Mode;

use crate::reach::is_reached;

/// Failed proofs of one source in a second.
const FAILED_PROOFS: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// How callers are proven at the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The credentials that are taken.
    pub(crate) credentials: Credentials,
    /// The alias of the issuer of the Kubernetes whose Pods are watched.
    pub(crate) pods_of: Option<String>,
    /// How much rights bind in a cluster that this node forms.
    pub(crate) mode: Mode,
    /// Whether clients of other machines are served while rights do not bind.
    pub(crate) allow_anonymous: bool,
    /// Failed proofs of one source in a second.
    pub(crate) failed_proofs_max: u64,
    /// What counts beside at the Lease endpoint.
    pub(crate) electors: Electors,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            pods_of: None,
            mode: Mode::Off,
            allow_anonymous: false,
            failed_proofs_max: FAILED_PROOFS_PER_SOURCE.per_second,
            electors: Electors::default(),
        }
    }
}

/// The credentials that a node takes.
pub(super) fn access(given: &Given) -> Result<Access, ConfigError> {
    let certificate = given.client_cert_principal.map(CertificateKind::from);
    let authority = given.trusted_ca_file.as_ref();
    let authority = authority.or(given.http_trusted_ca_file.as_ref());
    if let (Some(kind), None) = (certificate, authority) {
        let allowed = "together with --trusted-ca-file or --http-trusted-ca-file, which say who \
                       signs the certificates";
        return Err(ConfigError::value(
            "client-cert-principal",
            kind.to_string(),
            allowed.to_owned(),
        ));
    }
    let issuers = given.jwt_issuer.iter().map(|raw| {
        Issuer::parse(raw)
            .map_err(|error| ConfigError::value("jwt-issuer", raw.clone(), error.to_string()))
    });
    let credentials = Credentials {
        certificate,
        issuers: issuers.collect::<Result<_, _>>()?,
    };
    credentials.check().map_err(|error| {
        let offered = given.jwt_issuer.join(" ");
        ConfigError::value("jwt-issuer", offered, error.to_string())
    })?;
    let pods_of = pods_of(given, &credentials)?;
    let mode = given.access.as_deref().map_or(Ok(Mode::Off), mode)?;
    Ok(Access {
        credentials,
        pods_of,
        mode,
        allow_anonymous: given.allow_anonymous.unwrap_or(false),
        failed_proofs_max: in_range(
            "failed-proofs-max",
            given
                .failed_proofs_max
                .unwrap_or(FAILED_PROOFS_PER_SOURCE.per_second),
            FAILED_PROOFS,
        )?,
        electors: Electors::of(given)?,
    })
}

fn mode(raw: &str) -> Result<Mode, ConfigError> {
    let all = [Mode::Off, Mode::Permissive, Mode::Enforced];
    let found = all.into_iter().find(|mode| mode.as_str() == raw);
    found.ok_or_else(|| ConfigError::value("access", raw, "off, permissive or enforced"))
}

impl Access {
    /// Refuses an address for clients that other machines reach, unless it was said how much rights
    /// bind, or that they need not.
    pub(super) fn check_reach(
        &self,
        flag: &'static str,
        address: SocketAddr,
    ) -> Result<(), ConfigError> {
        let open = self.mode == Mode::Off && is_reached(address);
        match open && !self.allow_anonymous {
            false => Ok(()),
            true => Err(ConfigError::Open { flag, address }),
        }
    }
}

/// Refuses a mode that no cluster of such nodes could take: rights bind only where a node can tell
/// the other nodes from strangers.
pub(super) fn check_peers(
    mode: Mode,
    listen_peer: SocketAddr,
    peer_tls: Option<&NodeTls>,
) -> Result<(), ConfigError> {
    let named = peer_tls.is_some_and(|tls| tls.accept.admits_peers_alone());
    let closed = named || listen_peer.ip().to_canonical().is_loopback();
    if mode != Mode::Enforced || closed {
        return Ok(());
    }
    let allowed = match peer_tls.is_some_and(NodeTls::is_permissive) {
        true => {
            "off or permissive, or without --peer-tls-mode permissive, with which the peer port \
             admits every caller that comes without TLS"
        }
        false => {
            "off or permissive, or together with --cluster-secret-file or --peer-tls-name, by which \
             nodes differ from strangers, or with --listen-peer on loopback"
        }
    };
    Err(ConfigError::value("access", "enforced", allowed.to_owned()))
}

/// Whose Pods are watched: those of the one issuer of kind kubernetes, unless that is said.
fn pods_of(given: &Given, credentials: &Credentials) -> Result<Option<String>, ConfigError> {
    let kubernetes = credentials.issuers.iter();
    let kubernetes = kubernetes.filter(|issuer| issuer.kind == IssuerKind::Kubernetes);
    let aliases: Vec<&str> = kubernetes.map(|issuer| issuer.alias.as_str()).collect();
    match (&given.kube_pods_issuer, aliases.as_slice()) {
        (Some(alias), known) if known.contains(&alias.as_str()) => Ok(Some(alias.clone())),
        (Some(alias), known) => {
            let allowed = format!(
                "the alias of a --jwt-issuer with kind=kubernetes: {}",
                if known.is_empty() {
                    "there is none".to_owned()
                } else {
                    known.join(", ")
                }
            );
            Err(ConfigError::value(
                "kube-pods-issuer",
                alias.clone(),
                allowed,
            ))
        }
        (None, [only]) => Ok(Some((*only).to_owned())),
        (None, _) => Ok(None),
    }
}
