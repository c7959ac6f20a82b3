//! The protobuf in which client-go sends objects: four bytes, then an envelope that names the kind.

use std::collections::BTreeMap;

use prost::Message;

use crate::lease::{Lease, Metadata, OwnerReference, Spec};
use crate::options::DeleteOptions;
use crate::time::MicroTime;

/// What stands before the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body is refused, for people.
pub(crate) type Fault = String;

/// An object of some kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) raw: Vec<u8>,
}

/// Opens the envelope.
pub(crate) fn open(body: &[u8]) -> Result<Envelope, Fault> {
    let Some(body) = body.strip_prefix(MAGIC) else {
        return Err("the body does not begin as protobuf of Kubernetes does".to_owned());
    };
    let unknown = Unknown::decode(body).map_err(fault)?;
    if !unknown.content_encoding.is_empty() {
        return Err("the object in the body has a content encoding".to_owned());
    }
    let meta = unknown.type_meta.unwrap_or_default();
    Ok(Envelope {
        api_version: meta.api_version,
        kind: meta.kind,
        raw: unknown.raw,
    })
}

/// Reads a lease.
pub(crate) fn lease(raw: &[u8]) -> Result<Lease, Fault> {
    let lease = WireLease::decode(raw).map_err(fault)?;
    Ok(Lease {
        metadata: metadata(lease.metadata.unwrap_or_default())?,
        spec: spec(lease.spec.unwrap_or_default())?,
    })
}

/// Reads the options of a delete.
pub(crate) fn delete_options(raw: &[u8]) -> Result<DeleteOptions, Fault> {
    let options = WireDeleteOptions::decode(raw).map_err(fault)?;
    let preconditions = options.preconditions.unwrap_or_default();
    Ok(DeleteOptions {
        grace_period_seconds: options.grace_period_seconds,
        uid: preconditions.uid,
        resource_version: preconditions.resource_version,
        propagation_policy: options.propagation_policy,
        dry_run: options.dry_run,
    })
}

fn fault(error: impl std::fmt::Display) -> Fault {
    error.to_string()
}

fn metadata(of: ObjectMeta) -> Result<Metadata, Fault> {
    Ok(Metadata {
        name: of.name,
        generate_name: of.generate_name,
        namespace: of.namespace,
        uid: Some(of.uid).filter(|uid| !uid.is_empty()),
        resource_version: Some(of.resource_version).filter(|version| !version.is_empty()),
        creation_timestamp: time(of.creation_timestamp)?.map(MicroTime::whole),
        labels: of.labels,
        annotations: of.annotations,
        owner_references: of.owner_references.into_iter().map(owner).collect(),
        finalizers: of.finalizers,
    })
}

fn owner(of: Owner) -> OwnerReference {
    OwnerReference {
        api_version: of.api_version,
        kind: of.kind,
        name: of.name,
        uid: of.uid,
        controller: of.controller,
        block_owner_deletion: of.block_owner_deletion,
    }
}

fn spec(of: LeaseSpec) -> Result<Spec, Fault> {
    Ok(Spec {
        holder_identity: of.holder_identity,
        lease_duration_seconds: of.lease_duration_seconds,
        acquire_time: time(of.acquire_time)?,
        renew_time: time(of.renew_time)?,
        lease_transitions: of.lease_transitions,
        strategy: of.strategy,
        preferred_holder: of.preferred_holder,
    })
}

/// A message without fields is no time, as is the zero time of Go.
fn time(of: Option<Timestamp>) -> Result<Option<MicroTime>, Fault> {
    let Some(of) = of else { return Ok(None) };
    let Some(seconds) = of.seconds else {
        return Ok(None);
    };
    let time = MicroTime::from_parts(seconds, of.nanos.unwrap_or_default());
    let time = time.ok_or_else(|| "a time is outside of the years 1 to 9999".to_owned())?;
    Ok(Some(time))
}

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireLease {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Timestamp>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<Owner>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Owner {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    acquire_time: Option<Timestamp>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<Timestamp>,
    #[prost(int32, optional, tag = "5")]
    lease_transitions: Option<i32>,
    #[prost(string, optional, tag = "6")]
    strategy: Option<String>,
    #[prost(string, optional, tag = "7")]
    preferred_holder: Option<String>,
}

/// `Time` and `MicroTime`.
#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct WireDeleteOptions {
    #[prost(int64, optional, tag = "1")]
    grace_period_seconds: Option<i64>,
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Preconditions>,
    #[prost(string, optional, tag = "4")]
    propagation_policy: Option<String>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Preconditions {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    /// A body as client-go sends it.
    pub(crate) fn sealed(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
        let unknown = Unknown {
            type_meta: Some(TypeMeta {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }),
            raw,
            ..Unknown::default()
        };
        let mut body = MAGIC.to_vec();
        unknown.encode(&mut body).unwrap();
        body
    }

    /// A lease as protobuf.
    pub(crate) fn encoded(lease: &Lease) -> Vec<u8> {
        let timestamp = |time: Option<MicroTime>| {
            time.map(|time| Timestamp {
                seconds: Some(time.seconds()),
                nanos: i32::try_from(time.micros().rem_euclid(1_000_000) * 1_000).ok(),
            })
        };
        let of = lease.metadata.clone();
        let owners = of.owner_references.into_iter().map(|owner| Owner {
            kind: owner.kind,
            name: owner.name,
            uid: owner.uid,
            api_version: owner.api_version,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        });
        let metadata = ObjectMeta {
            name: of.name,
            generate_name: of.generate_name,
            namespace: of.namespace,
            uid: of.uid.unwrap_or_default(),
            resource_version: of.resource_version.unwrap_or_default(),
            creation_timestamp: timestamp(of.creation_timestamp),
            labels: of.labels,
            annotations: of.annotations,
            owner_references: owners.collect(),
            finalizers: of.finalizers,
        };
        let of = lease.spec.clone();
        let spec = LeaseSpec {
            holder_identity: of.holder_identity,
            lease_duration_seconds: of.lease_duration_seconds,
            acquire_time: timestamp(of.acquire_time),
            renew_time: timestamp(of.renew_time),
            lease_transitions: of.lease_transitions,
            strategy: of.strategy,
            preferred_holder: of.preferred_holder,
        };
        WireLease {
            metadata: Some(metadata),
            spec: Some(spec),
        }
        .encode_to_vec()
    }

    /// Options of a delete as protobuf.
    pub(crate) fn encoded_options(options: &DeleteOptions) -> Vec<u8> {
        WireDeleteOptions {
            grace_period_seconds: options.grace_period_seconds,
            preconditions: Some(Preconditions {
                uid: options.uid.clone(),
                resource_version: options.resource_version.clone(),
            }),
            propagation_policy: options.propagation_policy.clone(),
            dry_run: options.dry_run.clone(),
        }
        .encode_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{encoded, sealed};
    use super::*;
    use crate::lease::fixtures::held;

    #[test]
    fn a_lease_is_read_with_all_fields() {
        let mut sent = held();
        sent.metadata.finalizers = vec!["a/b".to_owned()];
        sent.spec.strategy = Some("s".to_owned());
        sent.spec.preferred_holder = Some("p".to_owned());
        let body = sealed("coordination.k8s.io/v1", "Lease", encoded(&sent));
        let envelope = open(&body).unwrap();
        assert_eq!(envelope.kind, "Lease");
        assert_eq!(lease(&envelope.raw).unwrap(), sent);
    }

    #[test]
    fn bytes_of_client_go_are_read() {
        // metadata { name: "a" creationTimestamp {} } spec { holderIdentity: "h"
        // leaseDurationSeconds: 15 renewTime { seconds: 1 nanos: 2000 } }
        let raw = b"\x0a\x05\x0a\x01a\x42\x00\x12\x0c\x0a\x01h\x10\x0f\x22\x05\x08\x01\x10\xd0\x0f";
        let read = lease(raw).unwrap();
        assert_eq!(read.metadata.name, "a");
        assert_eq!(read.metadata.creation_timestamp, None);
        assert_eq!(read.spec.holder(), Some("h"));
        assert_eq!(read.spec.lease_duration_seconds, Some(15));
        assert_eq!(read.spec.renew_time, MicroTime::from_parts(1, 2_000));
    }

    /// What client-go 0.36.3 sends of a lease in which `managedFields` and `generation` are set, too.
    const SENT: &str = "6b3873000a1f0a16636f6f7264696e6174696f6e2e6b38732e696f2f763112054c65617365127d0a\
        570a066c656164657212001a0473686f7022002a017532023431380342080880e2cfaa0610005a06\
        0a016112016262060a01631201646a120a03506f641a0170220270752a02763130018a010b0a0178\
        12001a003200420012220a026d65100f1a0b0880e2cfaa06108094ef3a220b0880e2cfaa06108094\
        ef3a28021a002200";

    #[test]
    fn a_whole_body_of_client_go_is_read() {
        let digits = |at: usize| u8::from_str_radix(&SENT[at..at + 2], 16).unwrap();
        let body: Vec<u8> = (0..SENT.len()).step_by(2).map(digits).collect();
        let envelope = open(&body).unwrap();
        assert_eq!(envelope.api_version, "coordination.k8s.io/v1");
        assert_eq!(envelope.kind, "Lease");
        let read = lease(&envelope.raw).unwrap();
        let time = MicroTime::parse("2023-11-14T22:13:20.123456Z");
        assert_eq!(read.metadata.name, "leader");
        assert_eq!(read.metadata.version().unwrap(), Some(41));
        assert_eq!(read.metadata.creation_timestamp, time.map(MicroTime::whole));
        assert_eq!(read.metadata.annotations["c"], "d");
        assert_eq!(read.metadata.owner_references[0].uid, "pu");
        assert_eq!(read.metadata.owner_references[0].controller, Some(true));
        assert_eq!((read.spec.acquire_time, read.spec.renew_time), (time, time));
        assert_eq!(read.spec.lease_transitions, Some(2));
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        for body in [&b""[..], b"k8s", b"{}", b"k8s\0\xff", b"k8s\0\x1a\x04gzip"] {
            open(body).unwrap_err();
        }
    }
}
