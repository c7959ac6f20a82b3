//! The object: a Lease of `coordination.k8s.io/v1`, with the fields that are kept here, and its JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::{API_VERSION, Cause, Failure, KIND, RESOURCE_VERSION};
use crate::time::{MicroTime, whole_seconds};

/// A Lease. Fields of Kubernetes that are not here (`managedFields`, `generation`, `selfLink` and
/// those of a slow deletion) are ignored in requests and never shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// What it is called, and by whom it is owned.
    #[serde(default)]
    pub metadata: Metadata,
    /// Who holds it.
    #[serde(default)]
    pub spec: Spec,
}

/// `metav1.ObjectMeta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// A DNS subdomain; empty in a request that leaves it to the path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A prefix of a name to make up: read so that it can be refused, and never kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// A DNS label; empty in a request that leaves it to the path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Distinguishes objects that had one name one after the other. In a request a precondition.
    #[serde(skip_serializing_if = "absent")]
    pub uid: Option<String>,
    /// The object's version, a decimal number. In a request a precondition.
    #[serde(skip_serializing_if = "absent")]
    pub resource_version: Option<String>,
    /// When it was created; shown in whole seconds.
    #[serde(with = "whole_seconds", skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<MicroTime>,
    /// Keys and values that selectors see.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Keys and values that no selector sees.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The objects that own this one. Kept and shown; nothing here collects garbage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Read so that they can be refused, and never kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid, by which references are distinguished.
    pub uid: String,
    /// Whether the owner manages the object; at most one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner's deletion waits for that of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// `coordinationv1.LeaseSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Who holds the lease, in the holder's own words. Empty as absent: no holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long candidates wait after the last renewal, in seconds, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the present holder became it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTime>,
    /// When the holder renewed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTime>,
    /// How many times the holder changed; not below 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// Of coordinated leader election: read, dropped with a warning, and never kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Of coordinated leader election, as `strategy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_holder: Option<String>,
}

impl Metadata {
    /// The version that a write is bound to; `None` if it says none. 422 if it is no number.
    pub fn version(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = self
            .resource_version
            .as_deref()
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        version(text).map(Some).ok_or_else(|| {
            let why = "must be the version that was read";
            let cause = Cause::invalid(RESOURCE_VERSION, text, why);
            Failure::invalid(&self.name, vec![cause])
        })
    }
}

impl Spec {
    /// The holder; `None` if it is absent or empty.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }
}

impl Lease {
    /// With `kind` and `apiVersion`, as it stands alone and in events.
    #[must_use]
    pub fn shown(&self) -> Typed<'_> {
        Typed {
            kind: KIND,
            api_version: API_VERSION,
            lease: self,
        }
    }
}

/// A lease with its kind, for serde.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Typed<'a> {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    lease: &'a Lease,
}

/// Reads a version: digits without a sign.
pub(crate) fn version(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn absent(text: &Option<String>) -> bool {
    text.as_deref().is_none_or(str::is_empty)
}

#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    /// A held lease with a value in each field that is shown.
    pub(crate) fn held() -> Lease {
        Lease {
            metadata: Metadata {
                name: "leader".to_owned(),
                namespace: "shop".to_owned(),
                uid: Some("0a-1".to_owned()),
                resource_version: Some("41".to_owned()),
                creation_timestamp: MicroTime::from_parts(1_700_000_000, 0),
                labels: BTreeMap::from([("app".to_owned(), "shop".to_owned())]),
                annotations: BTreeMap::from([
                    ("note".to_owned(), "n".to_owned()),
                    ("ringfence.io/token".to_owned(), "7".to_owned()),
                ]),
                owner_references: vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: "pod-1".to_owned(),
                    uid: "u-1".to_owned(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }],
                ..Metadata::default()
            },
            spec: Spec {
                holder_identity: Some("pod-1_a".to_owned()),
                lease_duration_seconds: Some(15),
                acquire_time: MicroTime::from_parts(1_700_000_000, 0),
                renew_time: MicroTime::from_parts(1_700_000_010, 123_456_000),
                lease_transitions: Some(3),
                ..Spec::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fixtures::held;
    use super::*;

    #[test]
    fn a_lease_is_shown_as_kube_apiserver_shows_it() {
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "leader",
                "namespace": "shop",
                "uid": "0a-1",
                "resourceVersion": "41",
                "creationTimestamp": "2023-11-14T22:13:20Z",
                "labels": { "app": "shop" },
                "annotations": { "note": "n", "ringfence.io/token": "7" },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Pod", "name": "pod-1", "uid": "u-1",
                    "controller": true,
                }],
            },
            "spec": {
                "holderIdentity": "pod-1_a",
                "leaseDurationSeconds": 15,
                "acquireTime": "2023-11-14T22:13:20.000000Z",
                "renewTime": "2023-11-14T22:13:30.123456Z",
                "leaseTransitions": 3,
            },
        });
        assert_eq!(serde_json::to_value(held().shown()).unwrap(), expected);
    }

    #[test]
    fn what_is_shown_is_read_back() {
        let shown = serde_json::to_value(held().shown()).unwrap();
        assert_eq!(serde_json::from_value::<Lease>(shown).unwrap(), held());
    }

    #[test]
    fn a_version_has_digits_and_nothing_else() {
        let of = |text: &str| Metadata {
            resource_version: Some(text.to_owned()),
            ..Metadata::default()
        };
        assert_eq!(of("").version().unwrap(), None);
        assert_eq!(of("41").version().unwrap(), Some(41));
        for text in ["+1", "-1", "1 ", "a", "18446744073709551616"] {
            assert_eq!(of(text).version().unwrap_err().code(), 422, "{text}");
        }
    }
}
