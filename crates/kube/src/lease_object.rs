//! What an object says of its lease, and how that is read and written.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use ringfence_core::{FencingToken, WallTime};
use serde_json::{Value, json};

use crate::name::ObjectName;
use crate::position::Position;

/// The label that says who keeps an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value on the objects of the mirror.
pub const MANAGER: &str = "ringfence";
/// The annotation with the greatest token ever granted for the lease, in decimal. After the grant
/// has ended it stays: it is the floor.
pub const TOKEN: &str = "ringfence.io/token";
/// The annotation with the [`Position`] at which the object's content was true.
pub const POSITION: &str = "ringfence.io/position";
/// The annotation with the cluster that keeps the object, in hexadecimal.
pub const CLUSTER: &str = "ringfence.io/cluster-id";

/// What an object says of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseObject {
    /// Who holds it; `None` if no client does.
    pub holder: Option<String>,
    /// The TTL in seconds.
    pub seconds: Option<i32>,
    /// When it was granted.
    pub since: Option<WallTime>,
    /// When it was last kept alive.
    pub renewed: Option<WallTime>,
    /// How often its holder changed.
    pub transitions: i32,
    /// The greatest token ever granted for it.
    pub token: Option<FencingToken>,
}

/// Who wrote an object, and when in the cluster's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its content was true here.
    pub at: Position,
    /// The cluster, in hexadecimal.
    pub cluster: String,
}

/// The version of an object; every write gives it a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

impl Version {
    /// Whether this version came after `other`; `None` if it is unknown.
    #[must_use]
    pub fn after(&self, other: &Self) -> Option<bool> {
        let number = |version: &Self| version.0.parse::<u64>().ok();
        Some(number(self)? > number(other)?)
    }
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The content, without what Kubernetes adds.
    pub content: LeaseObject,
    /// What the mirror's annotations say; `None` if one is missing or is no text of the mirror's.
    pub stamp: Option<Stamp>,
    /// Whether it has the mirror's label.
    pub labelled: bool,
    /// The `resourceVersion` that was read; a write is conditional on it.
    pub version: Version,
    /// Tells it from an object of the same name before or after it.
    pub uid: String,
}

impl Observed {
    /// Reads an object as the API server returned it; absent or malformed fields are `None`.
    #[must_use]
    pub fn of(lease: &Lease) -> Self {
        let annotation = |name: &str| lease.metadata.annotations.as_ref()?.get(name);
        let label = |name: &str| lease.metadata.labels.as_ref()?.get(name);
        let at = annotation(POSITION).and_then(|text| text.parse().ok());
        let cluster = annotation(CLUSTER).filter(|text| !text.is_empty());
        let token = annotation(TOKEN).and_then(|text| token_of(text));
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            content: LeaseObject {
                holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
                seconds: spec.lease_duration_seconds,
                since: spec.acquire_time.as_ref().map(wall),
                renewed: spec.renew_time.as_ref().map(wall),
                transitions: spec.lease_transitions.unwrap_or(0),
                token,
            },
            stamp: at.zip(cluster).map(|(at, cluster)| Stamp {
                at,
                cluster: cluster.clone(),
            }),
            labelled: label(MANAGED_BY).is_some_and(|value| value == MANAGER),
            version: Version(lease.metadata.resource_version.clone().unwrap_or_default()),
            uid: lease.metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// Whether it is the mirror's to write.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.labelled || self.stamp.is_some()
    }
}

/// A token as the mirror writes it: one text for each, so that equal texts mean equal tokens.
fn token_of(text: &str) -> Option<FencingToken> {
    let token = FencingToken::new(text.parse().ok()?)?;
    (token.to_string() == text).then_some(token)
}

/// Milliseconds are what the cluster knows; what another writer wrote finer is cut.
fn wall(time: &MicroTime) -> WallTime {
    WallTime(u64::try_from(time.0.as_millisecond()).unwrap_or(0))
}

fn micro_time(time: WallTime) -> Option<MicroTime> {
    let milliseconds = i64::try_from(time.0).ok()?;
    Timestamp::from_millisecond(milliseconds)
        .ok()
        .map(MicroTime)
}

impl LeaseObject {
    /// The object that does not exist yet.
    #[must_use]
    pub fn object(&self, name: &ObjectName, stamp: &Stamp) -> Lease {
        let annotations = self.annotations(stamp);
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value));
        Lease {
            metadata: ObjectMeta {
                namespace: Some(name.namespace.to_string()),
                name: Some(name.name.to_string()),
                labels: Some([(MANAGED_BY.to_owned(), MANAGER.to_owned())].into()),
                annotations: Some(annotations.into()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec()),
        }
    }

    /// A merge patch of the object that has this version: what others wrote on it stays, and a
    /// version that is not the newest any more is refused.
    #[must_use]
    pub fn patch(&self, version: &Version, stamp: &Stamp) -> Value {
        let spec = self.spec();
        json!({
            "metadata": {
                "resourceVersion": version.0,
                "labels": { MANAGED_BY: MANAGER },
                "annotations": self.annotations(stamp).into_iter().collect::<serde_json::Map<_, _>>(),
            },
            // `null` takes out what is there.
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseDurationSeconds": spec.lease_duration_seconds,
                "acquireTime": spec.acquire_time,
                "renewTime": spec.renew_time,
                "leaseTransitions": spec.lease_transitions,
            },
        })
    }

    fn annotations<T: From<String>>(&self, stamp: &Stamp) -> [(String, T); 3] {
        let token = self
            .token
            .map_or_else(String::new, |token| token.to_string());
        [
            (TOKEN.to_owned(), token.into()),
            (POSITION.to_owned(), stamp.at.to_string().into()),
            (CLUSTER.to_owned(), stamp.cluster.clone().into()),
        ]
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            // As client-go leaves it when a holder has released.
            holder_identity: Some(self.holder.clone().unwrap_or_default()),
            lease_duration_seconds: self.seconds,
            acquire_time: self.since.and_then(micro_time),
            renew_time: self.renewed.and_then(micro_time),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }

    /// The fields in which another one differs, by their names in the object.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let fields = [
            (self.holder != other.holder, "spec.holderIdentity"),
            (self.seconds != other.seconds, "spec.leaseDurationSeconds"),
            (self.since != other.since, "spec.acquireTime"),
            (self.renewed != other.renewed, "spec.renewTime"),
            (
                self.transitions != other.transitions,
                "spec.leaseTransitions",
            ),
            (self.token != other.token, TOKEN),
        ];
        let differing = fields.into_iter().filter(|(differs, _)| *differs);
        differing.map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> LeaseObject {
        LeaseObject {
            holder: Some("worker-1".to_owned()),
            seconds: Some(15),
            since: Some(WallTime(1_700_000_000_123)),
            renewed: Some(WallTime(1_700_000_004_500)),
            transitions: 3,
            token: FencingToken::new(1 << 52),
        }
    }

    fn released() -> LeaseObject {
        LeaseObject {
            token: FencingToken::new(7),
            ..LeaseObject::default()
        }
    }

    fn stamp() -> Stamp {
        Stamp {
            at: Position {
                counter: 1 << 52,
                index: 9,
            },
            cluster: "ab".repeat(16),
        }
    }

    fn name() -> ObjectName {
        ObjectName {
            namespace: "demo".into(),
            name: "leader".into(),
        }
    }

    #[test]
    fn an_object_says_what_was_written_on_it() {
        for content in [held(), released()] {
            let object = content.object(&name(), &stamp());
            let sent = serde_json::to_string(&object).unwrap();
            let found = Observed::of(&serde_json::from_str(&sent).unwrap());
            assert_eq!(found.content, content);
            assert_eq!(found.stamp, Some(stamp()));
            assert!(found.labelled && found.is_ours());
        }
    }

    #[test]
    fn a_patch_names_the_version_and_takes_out_what_is_not_there() {
        let patch = released().patch(&Version("42".to_owned()), &stamp());
        assert_eq!(patch["metadata"]["resourceVersion"], "42");
        assert_eq!(patch["metadata"]["annotations"][TOKEN], "7");
        assert_eq!(patch["spec"]["holderIdentity"], "");
        for field in ["leaseDurationSeconds", "acquireTime", "renewTime"] {
            assert!(
                patch["spec"]
                    .get(field)
                    .is_some_and(serde_json::Value::is_null)
            );
        }
    }

    #[test]
    fn an_object_without_our_marks_is_somebody_elses() {
        let foreign = Lease {
            spec: Some(held().spec()),
            ..Lease::default()
        };
        assert!(!Observed::of(&foreign).is_ours());

        let mut unlabelled = held().object(&name(), &stamp());
        unlabelled.metadata.labels = None;
        assert!(Observed::of(&unlabelled).is_ours());
        let annotations = unlabelled.metadata.annotations.as_mut().unwrap();
        annotations.insert(POSITION.to_owned(), "yesterday".to_owned());
        assert!(!Observed::of(&unlabelled).is_ours());
    }

    #[test]
    fn a_token_that_is_no_text_of_ours_is_no_token() {
        let read = |text: &str| {
            let mut object = held().object(&name(), &stamp());
            let annotations = object.metadata.annotations.as_mut().unwrap();
            annotations.insert(TOKEN.to_owned(), text.to_owned());
            Observed::of(&object).content.token
        };
        assert_eq!(read("9223372036854775807"), FencingToken::new(u64::MAX / 2));
        for text in ["", "0", "+7", "07", "9223372036854775808", "seven"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers_or_not_at_all() {
        let version = |text: &str| Version(text.to_owned());
        assert_eq!(version("10").after(&version("9")), Some(true));
        assert_eq!(version("9").after(&version("10")), Some(false));
        assert_eq!(version("x").after(&version("10")), None);
    }

    #[test]
    fn differences_are_named_as_people_see_them() {
        let mut edited = held();
        edited.holder = Some("me".to_owned());
        edited.token = None;
        assert_eq!(
            held().differences(&edited),
            ["spec.holderIdentity", "ringfence.io/token"]
        );
        assert!(held().differences(&held()).is_empty());
    }
}
