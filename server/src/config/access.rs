//! How callers are proven.

use ringfence_access::{CertificateKind, Credentials, Issuer, IssuerKind};

use super::ConfigError;
use super::given::Given;

/// How callers are proven at the client port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The credentials that are taken.
    pub(crate) credentials: Credentials,
    /// The alias of the issuer of the Kubernetes whose Pods are watched.
    pub(crate) pods_of: Option<String>,
}

/// The credentials that a node is told to take.
pub(super) fn access(given: &Given) -> Result<Access, ConfigError> {
    let certificate = given.client_cert_principal.map(CertificateKind::from);
    if let (Some(kind), None) = (certificate, &given.trusted_ca_file) {
        let allowed = "together with --trusted-ca-file, which says who signs the certificates";
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
    Ok(Access {
        credentials,
        pods_of,
    })
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
