//! What is guarded, and whose writes are judged: texts of the command line, parsed once.

use std::fmt;
use std::str::FromStr;

use crate::name::{NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, is_dns_label, is_dns_name};

/// Groups whose objects no policy may judge, or none of ours should.
const UNREACHABLE: [(&str, &str); 2] = [
    (
        "admissionregistration.k8s.io",
        "the API server lets no policy judge policies",
    ),
    (
        "coordination.k8s.io",
        "a policy on Leases could stop elections; mirrored Leases have a rule of their own",
    ),
];

/// A kind of object that is guarded, with all its subresources: `deployments.apps`, `pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, as in URLs.
    pub plural: String,
}

/// Why a text is no [`Resource`] that can be guarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResource {
    /// It names a subresource.
    #[error("{0:?}: subresources are guarded with their resource; name that alone")]
    Subresource(String),
    /// It is not PLURAL or PLURAL.GROUP.
    #[error(
        "{0:?} is no resource; name one as `kubectl api-resources` does, PLURAL or PLURAL.GROUP: \
         configmaps, deployments.apps"
    )]
    Malformed(String),
    /// It cannot be guarded.
    #[error("{offered:?} cannot be guarded: {why}")]
    Unreachable {
        /// The resource that was named.
        offered: String,
        /// The rule that it breaks, and what is allowed.
        why: &'static str,
    },
}

impl Resource {
    /// ConfigMaps: what the canary writes.
    #[must_use]
    pub fn config_maps() -> Self {
        Self {
            group: String::new(),
            plural: "configmaps".to_owned(),
        }
    }
}

impl FromStr for Resource {
    type Err = InvalidResource;

    fn from_str(text: &str) -> Result<Self, InvalidResource> {
        if text.contains('/') {
            return Err(InvalidResource::Subresource(text.to_owned()));
        }
        let (plural, group) = text.split_once('.').unwrap_or((text, ""));
        let fits = |part: &str| part.len() <= NAME_BYTES_MAX;
        let whole = is_dns_label(plural) && (group.is_empty() || is_dns_name(group));
        if !whole || !fits(text) || text.ends_with('.') {
            return Err(InvalidResource::Malformed(text.to_owned()));
        }
        if let Some((_, why)) = UNREACHABLE.iter().find(|(named, _)| *named == group) {
            let offered = text.to_owned();
            return Err(InvalidResource::Unreachable { offered, why });
        }
        Ok(Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
        })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// The service account whose writes are judged: `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account within its namespace.
    pub name: String,
}

/// Why a text is no [`ServiceAccount`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no service account; name it as NAMESPACE/NAME, both of a-z, 0-9 and -, dots in NAME \
     too"
)]
pub struct InvalidServiceAccount(String);

impl ServiceAccount {
    /// The name under which policies and roles know it.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceAccount {
    type Err = InvalidServiceAccount;

    fn from_str(text: &str) -> Result<Self, InvalidServiceAccount> {
        let refused = || InvalidServiceAccount(text.to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(refused)?;
        let whole = is_namespace(namespace) && is_dns_name(name);
        whole.then_some(()).ok_or_else(refused)?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether this could be a namespace, reserved or not.
pub(super) fn is_namespace(text: &str) -> bool {
    text.len() <= NAMESPACE_BYTES_MAX && is_dns_label(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_as_kubectl_does() {
        for text in ["configmaps", "deployments.apps", "fences.ringfence.io"] {
            let resource: Resource = text.parse().unwrap();
            assert_eq!(resource.to_string(), text);
        }
        let resource: Resource = "fences.ringfence.io".parse().unwrap();
        assert_eq!(resource.group, "ringfence.io");
    }

    #[test]
    fn what_cannot_be_guarded_is_refused_with_the_reason() {
        for (text, words) in [
            ("", "PLURAL.GROUP"),
            ("*", "PLURAL.GROUP"),
            ("Deployments.apps", "PLURAL.GROUP"),
            ("deployments.", "PLURAL.GROUP"),
            ("pods' || true || '", "PLURAL.GROUP"),
            ("deployments/scale", "with their resource"),
            ("leases.coordination.k8s.io", "stop elections"),
            (
                "validatingadmissionpolicies.admissionregistration.k8s.io",
                "no policy",
            ),
        ] {
            let refused = text.parse::<Resource>().unwrap_err().to_string();
            assert!(refused.contains(words), "{text:?}: {refused}");
        }
    }

    #[test]
    fn a_service_account_is_a_namespace_and_a_name() {
        let account: ServiceAccount = "demo/writer".parse().unwrap();
        assert_eq!(account.user(), "system:serviceaccount:demo:writer");
        for text in [
            "", "writer", "demo/", "/writer", "demo/a/b", "Demo/w", "d.e/w", "d/w:x",
        ] {
            assert!(text.parse::<ServiceAccount>().is_err(), "{text:?}");
        }
    }
}
