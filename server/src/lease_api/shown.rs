//! Objects as leases of Kubernetes.

use ringfence_core::{ClusterId, FencingToken, GoneObject, LeaseName, ObjectView, WallTime};
use ringfence_lease_api::lease::{Metadata, Spec};
use ringfence_lease_api::metadata::Stored;
use ringfence_lease_api::time::MicroTime;
use ringfence_lease_api::{Failure, Lease};

/// What the names of leases begin with that have objects.
pub(super) const PREFIX: &str = "k8s/";

/// The annotation that shows the holder's token, as in mirrored leases.
const TOKEN: &str = "ringfence.io/token";

/// The name of a lease; 404 for what no lease can be called.
pub(super) fn name_of(namespace: &str, name: &str) -> Result<LeaseName, Failure> {
    let text = format!("{PREFIX}{namespace}/{name}");
    LeaseName::parse(&text).map_err(|_| Failure::not_found(name))
}

/// What the names of a namespace's leases begin with; those of all if it is left out.
pub(super) fn prefix_of(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{PREFIX}{namespace}/"),
        None => PREFIX.to_owned(),
    }
}

/// Namespace and name.
pub(super) fn parts(name: &LeaseName) -> (&str, &str) {
    let rest = name.as_str().strip_prefix(PREFIX).unwrap_or_default();
    rest.split_once('/').unwrap_or((rest, ""))
}

/// An object's uid: the version that it was made with is no other object's in this cluster.
pub(super) fn uid(cluster: Option<ClusterId>, created: u64) -> String {
    let of_cluster = cluster.map_or([0; 16], |cluster| *cluster.as_bytes());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&of_cluster[..8]);
    bytes[8..].copy_from_slice(&created.to_be_bytes());
    // Version 8, made by a rule of one's own, of the variant of RFC 9562.
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = |part: &[u8]| {
        part.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    format!(
        "{}-{}-{}-{}-{}",
        hex(&bytes[..4]),
        hex(&bytes[4..6]),
        hex(&bytes[6..8]),
        hex(&bytes[8..10]),
        hex(&bytes[10..])
    )
}

fn micro(time: WallTime) -> Option<MicroTime> {
    let micros = i64::try_from(time.0.checked_mul(1_000)?).ok()?;
    (micros > 0).then(|| MicroTime::from_micros(micros))
}

/// An object as a lease. One that no process holds is shown as its last write left it: without a holder
/// and times if it named none, and else with an empty holder, the shortest duration and its times. There
/// are clients that cannot read a free lease without them, and clients that take it for held with them.
pub(super) fn lease(object: &ObjectView, cluster: Option<ClusterId>) -> Lease {
    let (namespace, name) = parts(&object.name);
    let stored = Stored::decode(object.metadata.as_bytes()).unwrap_or_default();
    let mut annotations = stored.annotations;
    if let Some((_, token)) = &object.holder {
        annotations.insert(TOKEN.to_owned(), token.to_string());
    }
    let holder = object
        .holder
        .as_ref()
        .map(|(identity, _)| identity.as_str());
    let seconds = match holder {
        Some(_) => i32::try_from(object.seconds).unwrap_or(i32::MAX),
        None => 1,
    };
    let began = object.acquired.0 > 0;
    let transitions = i32::try_from(object.transitions).unwrap_or(i32::MAX);
    let spec = match holder {
        None if stored.without_holder => Spec {
            lease_transitions: began.then_some(transitions),
            ..Spec::default()
        },
        holder => Spec {
            holder_identity: Some(holder.unwrap_or_default().to_owned()),
            lease_duration_seconds: Some(seconds),
            acquire_time: micro(if began {
                object.acquired
            } else {
                object.created_at
            }),
            renew_time: micro(if began {
                object.renewed
            } else {
                object.created_at
            }),
            lease_transitions: Some(transitions),
            ..Spec::default()
        },
    };
    Lease {
        metadata: Metadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            uid: Some(uid(cluster, object.created)),
            resource_version: Some(object.version.to_string()),
            creation_timestamp: micro(object.created_at),
            labels: stored.labels,
            annotations,
            owner_references: stored.owner_references,
            ..Metadata::default()
        },
        spec,
    }
}

/// What a write would make of a lease that is shown now, if it is there. It has the uid, the version and
/// the token of what is there, since a dry run is given none: a token that it showed would be granted to
/// another holder.
pub(super) fn rehearsed_lease(
    object: &ObjectView,
    present: Option<&Lease>,
    cluster: Option<ClusterId>,
) -> Lease {
    let mut would = lease(object, cluster);
    let own = present.map(|present| present.metadata.clone());
    let own = own.unwrap_or_default();
    would.metadata.uid = own.uid;
    would.metadata.resource_version = own.resource_version;
    let granted = would.metadata.annotations.remove(TOKEN);
    let held = own.annotations.get(TOKEN);
    // A holder keeps its token; one that takes the lease has none yet.
    if let Some(held) = held.filter(|held| Some(*held) == granted.as_ref()) {
        would
            .metadata
            .annotations
            .insert(TOKEN.to_owned(), held.clone());
    }
    would
}

/// A deleted object, as the last event of it shows it.
pub(super) fn gone(
    name: &LeaseName,
    version: u64,
    gone: &GoneObject,
    cluster: Option<ClusterId>,
) -> Lease {
    let (namespace, name) = parts(name);
    Lease {
        metadata: Metadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            uid: Some(uid(cluster, gone.created)),
            resource_version: Some(version.to_string()),
            creation_timestamp: micro(gone.created_at),
            ..Metadata::default()
        },
        spec: Spec::default(),
    }
}

/// A fence as guards take it.
pub(super) fn fence(name: &LeaseName, token: FencingToken) -> String {
    format!("{name}#{token}")
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Identity, ObjectMetadata};

    use super::*;

    fn held_with(token: u64) -> ObjectView {
        ObjectView {
            name: LeaseName::parse("k8s/shop/web").unwrap(),
            version: 9,
            created: 9,
            created_at: WallTime(1),
            metadata: ObjectMetadata::default(),
            holder: FencingToken::new(token)
                .map(|token| (Identity::parse("elector").unwrap(), token)),
            seconds: 15,
            acquired: WallTime(1),
            renewed: WallTime(1),
            transitions: 0,
        }
    }

    #[test]
    fn a_dry_run_shows_no_token_that_is_not_granted() {
        let free = lease(&held_with(0), None);
        let held = lease(&held_with(7), None);
        for present in [None, Some(&free), Some(&held)] {
            let would = rehearsed_lease(&held_with(8), present, None);
            assert_eq!(would.metadata.annotations.get(TOKEN), None, "{present:?}");
            assert_eq!(would.spec.holder(), Some("elector"));
        }
        let renewed = rehearsed_lease(&held_with(7), Some(&held), None);
        let token = renewed.metadata.annotations.get(TOKEN);
        assert_eq!(token.map(String::as_str), Some("7"));
    }
}
