//! What is to be fenced: checked once, so that every manifest made of it can be applied.

use ringfence_core::{FencingToken, LeaseName};

use super::carrier::{Carrier, FIELD_MANAGER_BYTES_MAX};
use super::subject::{Resource, ServiceAccount, is_namespace};
use crate::name::{InvalidNaming, NAME_BYTES_MAX, Naming, ObjectName};

/// The most resources that one lease guards.
pub const RESOURCES_MAX: usize = 64;

/// The most namespaces in which one lease guards objects.
pub const NAMESPACES_MAX: usize = 64;

/// The domain of everything that is ours in Kubernetes.
const DOMAIN: &str = "ringfence.io";

/// What the longest word before a lease's name in the name of a manifest is.
const LONGEST_KIND: &str = "canary-floor";

/// Digits of the greatest token.
const TOKEN_DIGITS_MAX: usize = 19;

/// What happens to the fenced account's writes while its lease has no token yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutLease {
    /// They are refused. Writes of others are never judged by it.
    Deny,
    /// The floor judges nothing; the mark does all the same.
    #[default]
    Allow,
}

/// What is said when manifests are asked for.
#[derive(Clone, Debug)]
pub struct FencingSpec {
    /// The mirrored Lease, `NAMESPACE/NAME`.
    pub lease: String,
    /// The prefix of mirrored leases' names.
    pub prefix: String,
    /// What is guarded; at least one.
    pub resources: Vec<Resource>,
    /// Where; the Lease's namespace if none is named.
    pub namespaces: Vec<String>,
    /// Whose writes are judged; the account that is called like the Lease if `None`.
    pub account: Option<ServiceAccount>,
    /// How they carry the fence.
    pub carrier: Carrier,
    /// What is done until the lease is granted.
    pub without_lease: WithoutLease,
    /// The namespace of the floor, where no account that is judged may write Leases.
    pub floors: String,
    /// The Ringfence cluster whose marks count, 32 hexadecimal digits. `None`: all marks do, those of
    /// objects that were copied from elsewhere too.
    pub cluster: Option<String>,
    /// Whether policies may change writes, which needs Kubernetes 1.36. `false`, with
    /// [`Carrier::Sequence`] alone: the client writes the mark, and who would lower one is refused.
    pub mutation: bool,
    /// Whether to print what all leases of a cluster share.
    pub keeper: bool,
}

impl FencingSpec {
    /// A wish with everything that can be left unsaid; `resources` still has to be filled.
    #[must_use]
    pub fn new(lease: impl Into<String>, carrier: Carrier) -> Self {
        Self {
            lease: lease.into(),
            prefix: crate::PREFIX.to_owned(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            account: None,
            carrier,
            without_lease: WithoutLease::default(),
            floors: crate::FLOORS.to_owned(),
            cluster: None,
            mutation: true,
            keeper: true,
        }
    }
}

/// A lease that guards objects. It can be printed as manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fencing {
    pub(super) object: ObjectName,
    pub(super) lease: LeaseName,
    pub(super) prefix: String,
    /// In order, each once.
    pub(super) resources: Vec<Resource>,
    /// Namespaces whose objects are guarded; at least one.
    pub(super) namespaces: Vec<String>,
    pub(super) account: ServiceAccount,
    pub(super) carrier: Carrier,
    pub(super) without_lease: WithoutLease,
    pub(super) floor: ObjectName,
    pub(super) cluster: Option<String>,
    pub(super) mutation: bool,
    pub(super) keeper: bool,
}

/// Why nothing can be fenced so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFencing {
    /// The Lease is not `NAMESPACE/NAME`.
    #[error("{0:?} is no Lease object; name it as NAMESPACE/NAME")]
    Lease(String),
    /// The prefix cannot begin a lease's name.
    #[error(transparent)]
    Prefix(#[from] InvalidNaming),
    /// No lease is mirrored to this object.
    #[error("no lease can be mirrored to the object {offered}: {why}")]
    Unmirrored {
        /// The object that was named.
        offered: String,
        /// The rule that it breaks, and what is allowed.
        why: String,
    },
    /// A namespace cannot be one.
    #[error("{0:?} is no namespace; it is 1 to 63 of a-z, 0-9 and -")]
    Namespace(String),
    /// No resource is named, so the policy would guard nothing.
    #[error(
        "no resource is named; name what the lease guards, as in deployments.apps or configmaps"
    )]
    NoResource,
    /// There are too many of something.
    #[error("{offered} {what}; at most {allowed} are allowed for one lease")]
    TooMany {
        /// What there is too much of: resources or namespaces.
        what: &'static str,
        /// How many there are.
        offered: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// No floor can be kept there.
    #[error(transparent)]
    Floors(InvalidNaming),
    /// No cluster is called so.
    #[error(
        "{0:?} is no id of a cluster; it is 32 hexadecimal digits, as `ringfence cluster status` prints it"
    )]
    Cluster(String),
    /// No client writes the mark with this carrier, and no policy would.
    #[error(
        "with the carrier {0} a policy writes the mark, which is a mutation; without mutation the \
         client writes it, and does so with the carrier sequence alone"
    )]
    Unmarked(Carrier),
    /// No policy writes the cluster's id beside the mark, and no client does.
    #[error(
        "a cluster id stands beside a mark by a mutation alone; without mutation all marks count: \
         leave the id out"
    )]
    ClusterUnmarked,
    /// The names of the manifests would be too long.
    #[error(
        "the names of the Lease and its namespace have {offered} bytes; at most {allowed} leave room \
         for the names of policies"
    )]
    TooLong {
        /// Length of both names together, in bytes.
        offered: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// A fence of the lease does not fit into the name of a field manager.
    #[error(
        "a fence of {lease} does not fit into the name of a field manager, which has at most \
         {FIELD_MANAGER_BYTES_MAX} bytes; choose the carrier impersonate or sequence, or a shorter name"
    )]
    FieldManager {
        /// The lease whose fence is too long.
        lease: LeaseName,
    },
}

impl Fencing {
    /// Checks what is wished.
    ///
    /// # Errors
    /// [`InvalidFencing`] says what was offered and what is allowed.
    pub fn new(wish: FencingSpec) -> Result<Self, InvalidFencing> {
        let (object, lease, floor) = mirrored(&wish)?;
        let digits = |id: &&String| {
            id.len() == 32
                && id
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if let Some(wrong) = wish.cluster.iter().find(|id| !digits(id)) {
            return Err(InvalidFencing::Cluster(wrong.clone()));
        }
        if !wish.mutation && wish.carrier != Carrier::Sequence {
            return Err(InvalidFencing::Unmarked(wish.carrier));
        }
        if !wish.mutation && wish.cluster.is_some() {
            return Err(InvalidFencing::ClusterUnmarked);
        }
        let mut resources = wish.resources;
        resources.sort();
        resources.dedup();
        if resources.is_empty() {
            return Err(InvalidFencing::NoResource);
        }
        at_most("resources", resources.len(), RESOURCES_MAX)?;
        let mut namespaces = wish.namespaces;
        if namespaces.is_empty() {
            namespaces.push(object.namespace.to_string());
        }
        at_most("namespaces", namespaces.len(), NAMESPACES_MAX)?;
        if let Some(wrong) = namespaces.iter().find(|name| !is_namespace(name)) {
            return Err(InvalidFencing::Namespace(wrong.clone()));
        }
        let account = wish.account.unwrap_or_else(|| ServiceAccount {
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
        });
        let fencing = Self {
            object,
            lease,
            prefix: wish.prefix,
            resources,
            namespaces,
            account,
            carrier: wish.carrier,
            without_lease: wish.without_lease,
            floor,
            cluster: wish.cluster,
            mutation: wish.mutation,
            keeper: wish.keeper,
        };
        fencing.check_lengths()?;
        Ok(fencing)
    }

    fn check_lengths(&self) -> Result<(), InvalidFencing> {
        let names = self.object.namespace.len() + self.object.name.len();
        let around = self.named(LONGEST_KIND).len() - names;
        let allowed = NAME_BYTES_MAX - around;
        if names > allowed {
            let offered = names;
            return Err(InvalidFencing::TooLong { offered, allowed });
        }
        let longest = self.lease.as_str().len() + "#".len() + TOKEN_DIGITS_MAX;
        if self.carrier == Carrier::FieldManager && longest > FIELD_MANAGER_BYTES_MAX {
            let lease = self.lease.clone();
            return Err(InvalidFencing::FieldManager { lease });
        }
        Ok(())
    }

    /// The lease whose fences are admitted.
    #[must_use]
    pub fn lease(&self) -> &LeaseName {
        &self.lease
    }

    /// The fence of a grant, as writes carry it.
    #[must_use]
    pub fn fence(&self, token: FencingToken) -> String {
        format!("{}#{token}", self.lease)
    }

    /// The object whose token is the floor.
    #[must_use]
    pub fn floor_object_name(&self) -> &ObjectName {
        &self.floor
    }

    /// The mirrored Lease's name.
    #[must_use]
    pub fn object_name(&self) -> &str {
        &self.object.name
    }

    /// The mirrored Lease's namespace.
    #[must_use]
    pub fn object_namespace(&self) -> &str {
        &self.object.namespace
    }

    /// The namespace of the canary's objects: the first of those in which something is guarded.
    #[must_use]
    pub fn canary_namespace(&self) -> &str {
        &self.namespaces[0]
    }

    /// Whose writes are judged.
    #[must_use]
    pub fn account(&self) -> &ServiceAccount {
        &self.account
    }

    /// How they carry their fence.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Whether policies write the mark. If not, the client does, beside its fence.
    #[must_use]
    pub fn mutates(&self) -> bool {
        self.mutation
    }

    /// What one of this lease's manifests is called.
    pub(super) fn named(&self, kind: &str) -> String {
        let ObjectName { namespace, name } = &self.object;
        format!("{kind}.{name}.{namespace}.{DOMAIN}")
    }

    /// The command that prints this.
    pub(super) fn command(&self) -> String {
        let mut command = format!("ringfence kube policy --lease {}", self.object);
        for resource in &self.resources {
            flag(&mut command, "resource", &resource.to_string());
        }
        self.name_judged(&mut command);
        if self.without_lease == WithoutLease::Deny {
            flag(&mut command, "without-lease", "deny");
        }
        if *self.floor.namespace != *crate::FLOORS {
            flag(&mut command, "floors", &self.floor.namespace);
        }
        if let Some(cluster) = &self.cluster {
            flag(&mut command, "cluster-id", cluster);
        }
        if !self.mutation {
            command.push_str(" --without-mutation");
        }
        if !self.keeper {
            command.push_str(" --without-keeper");
        }
        command
    }

    /// The command that tries whether stale writes of the same account, carried in the same way, are
    /// refused.
    pub(super) fn canary_command(&self) -> String {
        let mut command = format!("ringfence kube canary --lease {}", self.object);
        self.name_judged(&mut command);
        command
    }

    /// Says whose writes are judged, and where, with the flags that both commands know.
    fn name_judged(&self, command: &mut String) {
        flag(command, "carrier", self.carrier.name());
        flag(command, "service-account", &self.account.to_string());
        if self.prefix != crate::PREFIX {
            flag(command, "kube-prefix", &self.prefix);
        }
        if self.namespaces != [&*self.object.namespace] {
            for namespace in &self.namespaces {
                flag(command, "namespace", namespace);
            }
        }
    }
}

fn flag(command: &mut String, name: &str, value: &str) {
    command.push_str(&format!(" --{name} {value}"));
}

/// The object, the lease that is mirrored to it, and its floor.
fn mirrored(wish: &FencingSpec) -> Result<(ObjectName, LeaseName, ObjectName), InvalidFencing> {
    let (prefix, text) = (&wish.prefix, &wish.lease);
    let (namespace, name) = text
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .ok_or_else(|| InvalidFencing::Lease(text.clone()))?;
    let naming = Naming::new(prefix, None)?;
    let naming = naming.with_floors_in(&wish.floors);
    let naming = naming.map_err(InvalidFencing::Floors)?;
    let unmirrored = |why: String| InvalidFencing::Unmirrored {
        offered: text.clone(),
        why,
    };
    let lease = LeaseName::parse(&format!("{prefix}/{text}"));
    let lease = lease.map_err(|error| unmirrored(error.to_string()))?;
    match naming.place(&lease) {
        crate::Mapping::Object(object) => {
            debug_assert_eq!((&*object.namespace, &*object.name), (namespace, name));
            let long = InvalidFencing::TooLong {
                offered: namespace.len() + name.len(),
                allowed: NAME_BYTES_MAX - crate::name::floor_bytes(),
            };
            let floor = naming.floor(&object).ok_or(long)?;
            Ok((object, lease, floor))
        }
        crate::Mapping::InvalidObjectName(why) => Err(unmirrored(why.to_string())),
        crate::Mapping::Elsewhere => Err(unmirrored("its prefix is another one".to_owned())),
    }
}

fn at_most(what: &'static str, offered: usize, allowed: usize) -> Result<(), InvalidFencing> {
    if offered > allowed {
        return Err(InvalidFencing::TooMany {
            what,
            offered,
            allowed,
        });
    }
    Ok(())
}
