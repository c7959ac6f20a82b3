//! Which lease is which object: `PREFIX/NAMESPACE/NAME` is the Lease `NAME` in `NAMESPACE`.
//!
//! A name that Kubernetes cannot carry is reported, not mangled: two leases must never meet in one
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

/// The namespace of floors unless another one is chosen: the one that Ringfence is installed in.
pub const FLOORS: &str = "ringfence";

/// What the name of a floor begins with; then the namespace and the name of the Lease that it is the
/// floor of. A namespace has no dot, so no two leases share a floor.
const FLOOR: &str = "floor.";

/// Namespaces whose Leases are the heartbeats of nodes and of API servers: nothing of ours is ever
/// written there.
pub const RESERVED_NAMESPACES: [&str; 2] = ["kube-node-lease", "kube-system"];

/// The name of a Lease object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace of the object, a DNS label.
    pub namespace: Arc<str>,
    /// Name of the object within its namespace, a DNS subdomain.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a lease cannot be an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidObjectName {
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
    /// The namespace is the one of floors.
    #[error("the Leases in {0} are the floors of fencing tokens; choose another namespace")]
    Floors(String),
}

/// What a lease is to the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// It is this object.
    Object(ObjectName),
    /// It is none of the mirror's business.
    Elsewhere,
    /// It should be an object and cannot.
    InvalidObjectName(InvalidObjectName),
}

/// The rule by which leases become objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// With the `/` at its end.
    prefix: String,
    namespace: Option<String>,
    floors: String,
}

/// Why there is no such [`Naming`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNaming {
    /// The prefix cannot begin the name of a lease.
    #[error("{0:?} cannot begin the name of a lease; choose letters and digits, as {PREFIX:?}")]
    Prefix(String),
    /// The namespace cannot be one.
    #[error(transparent)]
    Namespace(#[from] InvalidObjectName),
    /// The namespace of floors cannot be one, or is the one that is mirrored.
    #[error("floors cannot be kept in {offered:?}: {why}")]
    Floors {
        /// The namespace that was named.
        offered: String,
        /// The rule of Kubernetes that it breaks.
        why: String,
    },
}

/// The floor of a lease: an object beside its Lease, in a namespace where the writers that it judges
/// have no rights. `None` if its name would be longer than an object's can be; policies refuse such
/// leases as well.
#[must_use]
pub fn floor_of(floors: &str, object: &ObjectName) -> Option<ObjectName> {
    let ObjectName { namespace, name } = object;
    let name = format!("{FLOOR}{namespace}.{name}");
    (name.len() <= NAME_BYTES_MAX).then(|| ObjectName {
        namespace: floors.into(),
        name: name.into(),
    })
}

/// What the name of a floor has beside the names that it is made of.
pub(crate) const fn floor_bytes() -> usize {
    FLOOR.len() + ".".len()
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
            floors: FLOORS.to_owned(),
        })
    }

    /// The same, with the floors in this namespace instead of [`FLOORS`].
    ///
    /// # Errors
    /// [`InvalidNaming::Floors`] if it is no namespace, belongs to Kubernetes, or is the only one that
    /// is mirrored.
    pub fn with_floors_in(self, floors: &str) -> Result<Self, InvalidNaming> {
        let refused = |why: String| InvalidNaming::Floors {
            offered: floors.to_owned(),
            why,
        };
        check_namespace(floors).map_err(|unfit| refused(unfit.to_string()))?;
        if self.namespace() == Some(floors) {
            return Err(refused("its leases are mirrored".to_owned()));
        }
        Ok(Self {
            floors: floors.to_owned(),
            ..self
        })
    }

    /// The namespaces in which objects are read and written; `None` for all.
    #[must_use]
    pub fn namespaces(&self) -> Option<[&str; 2]> {
        Some([self.namespace()?, &self.floors])
    }

    /// Whether an object is a floor.
    #[must_use]
    pub fn is_floor(&self, object: &ObjectName) -> bool {
        *object.namespace == *self.floors
    }

    /// The floor of a lease with this object.
    #[must_use]
    pub fn floor(&self, object: &ObjectName) -> Option<ObjectName> {
        floor_of(&self.floors, object)
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
    pub fn place(&self, lease: &LeaseName) -> Mapping {
        let Some(rest) = lease.as_str().strip_prefix(&self.prefix) else {
            return Mapping::Elsewhere;
        };
        let mut segments = rest.split('/');
        let (namespace, name) = (segments.next(), segments.next());
        if self.namespace.is_some() && namespace != self.namespace() {
            return Mapping::Elsewhere;
        }
        let (Some(namespace), Some(name), None) = (namespace, name, segments.next()) else {
            return Mapping::InvalidObjectName(InvalidObjectName::Segments);
        };
        if let Err(unfit) = check_namespace(namespace) {
            return Mapping::InvalidObjectName(unfit);
        }
        if namespace == self.floors {
            return Mapping::InvalidObjectName(InvalidObjectName::Floors(namespace.to_owned()));
        }
        if !is_dns_name(name) {
            return Mapping::InvalidObjectName(InvalidObjectName::Name(name.to_owned()));
        }
        Mapping::Object(ObjectName {
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    /// The lease that an object shows, or is the floor of; `None` if there can be none.
    #[must_use]
    pub fn lease(&self, object: &ObjectName) -> Option<LeaseName> {
        let shown = self.is_floor(object).then(|| {
            let (namespace, name) = object.name.strip_prefix(FLOOR)?.split_once('.')?;
            Some(ObjectName {
                namespace: namespace.into(),
                name: name.into(),
            })
        });
        let shown = shown.unwrap_or_else(|| Some(object.clone()))?;
        self.shown(&shown)
    }

    fn shown(&self, object: &ObjectName) -> Option<LeaseName> {
        let lease = LeaseName::parse(&format!("{}{object}", self.prefix)).ok()?;
        matches!(self.place(&lease), Mapping::Object(_)).then_some(lease)
    }
}

fn check_namespace(namespace: &str) -> Result<(), InvalidObjectName> {
    if namespace.len() > NAMESPACE_BYTES_MAX || !is_dns_label(namespace) {
        return Err(InvalidObjectName::Namespace(namespace.to_owned()));
    }
    if RESERVED_NAMESPACES.contains(&namespace) {
        return Err(InvalidObjectName::Reserved(namespace.to_owned()));
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
