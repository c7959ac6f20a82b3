//! Any Lease object.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::snapshot::{GoneRecord, ObjectRecord, OwingRecord, Record};
use ringfence_core::*;

use super::*;

fn metadata() -> BoxedStrategy<ObjectMetadata> {
    let sizes = 1..=OBJECT_METADATA_BYTES_MAX;
    prop_oneof![
        Just(vec![]),
        vec(any::<u8>(), 1..40),
        vec(any::<u8>(), sizes)
    ]
    .prop_map(|bytes| ObjectMetadata::new(&bytes).unwrap())
    .boxed()
}

fn pod_uid() -> BoxedStrategy<PodUid> {
    pod().prop_map(|pod| pod.uid().clone()).boxed()
}

fn candidate() -> BoxedStrategy<Candidate> {
    (option::of(access::principal()), option::of(pod_uid()))
        .prop_map(|(principal, pod)| Candidate { principal, pod })
        .boxed()
}

fn spec() -> BoxedStrategy<ObjectSpec> {
    let what = (identity(), any::<u32>(), any::<bool>());
    (what, open_id(), secret())
        .prop_map(|((holder, seconds, new_term), open, secret)| ObjectSpec {
            holder,
            seconds,
            new_term,
            open,
            secret,
        })
        .boxed()
}

pub(crate) fn write_object() -> BoxedStrategy<Command> {
    let put = (metadata(), option::of(spec()))
        .prop_map(|(metadata, spec)| ObjectWrite::Put { metadata, spec });
    let delete = option::of(revoke()).prop_map(|revoke| ObjectWrite::Delete { revoke });
    let write = prop_oneof![put, delete];
    let pods = (option::of(pod_uid()), option::of(pod()));
    (name(), option::of(count()), pods, write)
        .prop_map(|(name, version, (uid, watched), write)| {
            Command::WriteObject(Box::new(WriteObject {
                name,
                version,
                pod: uid,
                watched,
                write,
            }))
        })
        .boxed()
}

fn object() -> BoxedStrategy<LeaseObject> {
    let term = (token(), session(), candidate(), option::of(pod()));
    let term = term.prop_map(|(token, session, candidate, pod)| Term {
        token,
        session,
        candidate,
        pod,
    });
    let versions = (count(), count());
    let times = (wall(), wall(), wall(), time());
    let owner = option::of(access::principal());
    let counts = (any::<u32>(), any::<u32>(), any::<bool>(), owner);
    (versions, times, counts, metadata(), option::of(term))
        .prop_map(
            |(versions, times, (seconds, transitions, native, owner), metadata, term)| {
                let (version, created) = versions;
                let (created_at, acquired, renewed, heard) = times;
                LeaseObject {
                    version,
                    created,
                    created_at,
                    metadata,
                    seconds,
                    acquired,
                    renewed,
                    heard,
                    transitions,
                    term,
                    native,
                    owner,
                }
            },
        )
        .boxed()
}

pub(crate) fn written() -> BoxedStrategy<ObjectWritten> {
    let holder = option::of((identity(), token()));
    let held = option::of((token(), millis()));
    (name(), object(), holder, held)
        .prop_map(|(name, object, holder, held)| {
            let object = ObjectView {
                name,
                version: object.version,
                created: object.created,
                created_at: object.created_at,
                metadata: object.metadata,
                holder,
                seconds: object.seconds,
                acquired: object.acquired,
                renewed: object.renewed,
                transitions: object.transitions,
            };
            ObjectWritten { object, held }
        })
        .boxed()
}

pub(crate) fn refused() -> BoxedStrategy<Rejection> {
    prop_oneof![
        option::of(1..=u64::MAX).prop_map(|present| Rejection::ObjectChanged { present }),
        millis().prop_map(|remaining| Rejection::Owing { remaining }),
    ]
    .boxed()
}

pub(crate) fn object_record() -> BoxedStrategy<Record> {
    let owing = (identity(), candidate(), count(), option::of(time())).prop_map(
        |(identity, candidate, lost, until)| Owing {
            identity,
            candidate,
            lost,
            until,
        },
    );
    prop_oneof![
        (name(), object()).prop_map(|(name, object)| Record::Object(ObjectRecord { name, object })),
        (name(), count(), count(), wall()).prop_map(|(name, version, created, created_at)| {
            let gone = GoneObject {
                created,
                created_at,
            };
            Record::GoneObject(GoneRecord {
                version,
                name,
                gone,
            })
        }),
        (name(), vec(owing, 0..4))
            .prop_map(|(name, notes)| Record::Owing(OwingRecord { name, notes })),
    ]
    .boxed()
}
