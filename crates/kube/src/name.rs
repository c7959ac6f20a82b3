//! Which lease is which object: `PREFIX/NAMESPACE/NAME` is the Lease `NAME` in `NAMESPACE`.
//!
//! A name that Kubernetes cannot carry is told, not mangled: two leases must never meet in one
//! object.

use std::fmt;
use std::sync::Arc;

use ringfence_core::LeaseName;

/// The prefix of lease names unless another one is chosen.
pub const PREFIX: &str = "k8s";

/// The longest name of a namespace, in bytes: a label of a DNS name.
pub const NAMESPACE_BYTES_MAX: usize = 63;

/// The longest name of an object, in bytes: a DNS name.
pub const NAME_BYTES_MAX: usize = 253;

/// Namespaces whose Leases are the heartbeats of nodes and of API servers: nothing of ours is ever
/// written there.
pub const RESERVED_NAMESPACES: [&str; 2] = ["kube-node-lease", "kube-system"];

/// The name of a Lease object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a lease cannot be an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It has not exactly two segments behind the prefix.
    #[error("it must be PREFIX/NAMESPACE/NAME")]
    Segments,
    /// The namespace is no DNS label.
    #[error(
        "{0:?} is no namespace: 1 to {NAMESPACE_BYTES_MAX} of a-z, 0-9 and -, a letter or digit at \
         both ends"
    )]
    Namespace(String),
    /// The name is no DNS name.
    #[error(
        "{0:?} is no name of an object: at most {NAME_BYTES_MAX} of a-z, 0-9, - and ., a letter or \
         digit at both ends of each part"
    )]
    Name(String),
    /// The namespace is one of [`RESERVED_NAMESPACES`].
    #[error("the Leases in {0} belong to Kubernetes; choose another namespace")]
    Reserved(String),
}

/// What a lease is to the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is this object.
    Object(ObjectName),
    /// It is none of the mirror's business.
    Elsewhere,
    /// It should be an object and cannot.
    Unfit(Unfit),
}

/// The rule by which leases become objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// With the `/` at its end.
    prefix: String,
    namespace: Option<String>,
}

/// Why there is no such [`Naming`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNaming {
    /// The prefix cannot begin the name of a lease.
    #[error("{0:?} cannot begin the name of a lease; choose letters and digits, as {PREFIX:?}")]
    Prefix(String),
    /// The namespace cannot be one.
    #[error(transparent)]
    Namespace(#[from] Unfit),
}

impl Naming {
    /// Mirrors leases that begin with `prefix` and a `/`: those of one namespace, or of all.
    ///
    /// # Errors
    /// [`InvalidNaming`] if no lease could be named so.
    pub fn new(prefix: &str, namespace: Option<&str>) -> Result<Self, InvalidNaming> {
        if LeaseName::parse(&format!("{prefix}/a/b")).is_err() {
            return Err(InvalidNaming::Prefix(prefix.to_owned()));
        }
        namespace.map(check_namespace).transpose()?;
        Ok(Self {
            prefix: format!("{prefix}/"),
            namespace: namespace.map(str::to_owned),
        })
    }

    /// What every mirrored lease's name begins with.
    #[must_use]
    pub fn leases(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}{namespace}/", self.prefix),
            None => self.prefix.clone(),
        }
    }

    /// The only namespace that is mirrored, if there is only one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Where a lease belongs.
    #[must_use]
    pub fn place(&self, lease: &LeaseName) -> Place {
        let Some(rest) = lease.as_str().strip_prefix(&self.prefix) else {
            return Place::Elsewhere;
        };
        let mut segments = rest.split('/');
        let (namespace, name) = (segments.next(), segments.next());
        if self.namespace.is_some() && namespace != self.namespace() {
            return Place::Elsewhere;
        }
        let (Some(namespace), Some(name), None) = (namespace, name, segments.next()) else {
            return Place::Unfit(Unfit::Segments);
        };
        if let Err(unfit) = check_namespace(namespace) {
            return Place::Unfit(unfit);
        }
        if !is_dns_name(name) {
            return Place::Unfit(Unfit::Name(name.to_owned()));
        }
        Place::Object(ObjectName {
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    /// The lease that an object stands for; `None` if there can be none.
    #[must_use]
    pub fn lease(&self, object: &ObjectName) -> Option<LeaseName> {
        let lease = LeaseName::parse(&format!("{}{object}", self.prefix)).ok()?;
        matches!(self.place(&lease), Place::Object(_)).then_some(lease)
    }
}

fn check_namespace(namespace: &str) -> Result<(), Unfit> {
    if namespace.len() > NAMESPACE_BYTES_MAX || !is_dns_label(namespace) {
        return Err(Unfit::Namespace(namespace.to_owned()));
    }
    if RESERVED_NAMESPACES.contains(&namespace) {
        return Err(Unfit::Reserved(namespace.to_owned()));
    }
    Ok(())
}

pub(crate) fn is_dns_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_dns_label)
}

/// Its length is the caller's business: parts of an object's name may be longer than DNS allows.
pub(crate) fn is_dns_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty()
        && label.bytes().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
