//! Lease objects.

use ringfence_core::snapshot::{GoneRecord, ObjectRecord, OwingRecord, Record};
use ringfence_core::*;

use super::*;

const VERSION: u64 = 1_700_000_000_000_007;
const WALL: WallTime = WallTime(1_700_000_000_123);

fn lease() -> LeaseName {
    name("k8s/shop/web")
}

fn metadata() -> ObjectMetadata {
    ObjectMetadata::new(b"labels and owners").unwrap()
}

fn candidate() -> Candidate {
    Candidate {
        principal: Some(access::principal("sa:prod:shop/web")),
        pod: Some(pod().uid().clone()),
    }
}

fn write(version: Option<u64>, pod: Option<PodUid>, write: ObjectWrite) -> Command {
    Command::WriteObject(Box::new(WriteObject {
        name: lease(),
        version,
        pod,
        watched: None,
        write,
    }))
}

pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let (operator, reason) = by_hand();
    let spec = ObjectSpec {
        holder: identity(),
        seconds: 15,
        new_term: true,
        open: OpenId::new(*b"this open's name"),
        secret: Secret::new(SECRET),
    };
    let put = ObjectWrite::Put {
        metadata: metadata(),
        spec: Some(spec),
    };
    let made = ObjectWrite::Put {
        metadata: ObjectMetadata::default(),
        spec: None,
    };
    let revoke = Revoke {
        name: lease(),
        token: token(5),
        now: true,
        reason,
        operator,
    };
    let deleted = ObjectWrite::Delete {
        revoke: Some(revoke),
    };
    let uid = candidate().pod;
    let watched = Command::WriteObject(Box::new(WriteObject {
        name: lease(),
        version: Some(VERSION),
        pod: uid.clone(),
        watched: Some(pod()),
        write: put.clone(),
    }));
    vec![
        ("write_object_in_watched_pod", watched),
        ("write_object", write(Some(VERSION), uid, put)),
        ("write_object_made", write(None, None, made)),
        (
            "write_object_deleted",
            write(Some(VERSION), None, ObjectWrite::Delete { revoke: None }),
        ),
        ("write_object_revoked", write(Some(VERSION), None, deleted)),
    ]
}

fn view() -> ObjectView {
    ObjectView {
        name: lease(),
        version: VERSION,
        created: VERSION - 4,
        created_at: WALL,
        metadata: metadata(),
        holder: Some((identity(), token(5))),
        seconds: 15,
        acquired: WALL,
        renewed: WALL,
        transitions: 3,
    }
}

pub(crate) fn outcomes() -> Vec<(&'static str, Outcome)> {
    let held = ObjectWritten {
        object: view(),
        held: Some((token(5), Millis(22_500))),
    };
    let free = ObjectWritten {
        object: ObjectView {
            holder: None,
            metadata: ObjectMetadata::default(),
            ..view()
        },
        held: None,
    };
    vec![
        ("object", Outcome::Object(Box::new(held))),
        ("object_of_no_holder", Outcome::Object(Box::new(free))),
    ]
}

pub(crate) fn rejections() -> Vec<(&'static str, Rejection)> {
    let present = Some(VERSION);
    let remaining = Millis(9_500);
    vec![
        ("object_changed", Rejection::ObjectChanged { present }),
        ("object_gone", Rejection::ObjectChanged { present: None }),
        ("owing", Rejection::Owing { remaining }),
        (
            "limit_objects",
            Rejection::Limit(Limit::Objects(OBJECTS_MAX)),
        ),
        (
            "limit_namespace_objects",
            Rejection::Limit(Limit::NamespaceObjects(NAMESPACE_OBJECTS_MAX)),
        ),
        (
            "limit_principal_objects",
            Rejection::Limit(Limit::PrincipalObjects(PRINCIPAL_OBJECTS_MAX)),
        ),
    ]
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let term = Term {
        token: token(5),
        session: session(300),
        candidate: candidate(),
        pod: None,
    };
    let object = LeaseObject {
        version: VERSION,
        created: VERSION - 4,
        created_at: WALL,
        metadata: metadata(),
        seconds: 15,
        acquired: WALL,
        renewed: WALL,
        heard: ClusterTime(0),
        transitions: 3,
        term: Some(term.clone()),
        native: false,
        owner: None,
    };
    let owned = LeaseObject {
        owner: candidate().principal,
        ..object.clone()
    };
    let in_pod = LeaseObject {
        heard: ClusterTime(140_000),
        term: Some(Term {
            pod: Some(pod()),
            ..term
        }),
        ..object.clone()
    };
    let free = LeaseObject {
        metadata: ObjectMetadata::default(),
        term: None,
        ..object.clone()
    };
    let of_session = LeaseObject {
        native: true,
        ..free.clone()
    };
    let gone = GoneRecord {
        version: VERSION,
        name: lease(),
        gone: GoneObject {
            created: VERSION - 4,
            created_at: WALL,
        },
    };
    let lost = Owing {
        identity: identity(),
        candidate: candidate(),
        lost: VERSION - 1,
        until: None,
    };
    let refused = Owing {
        candidate: Candidate::default(),
        lost: VERSION,
        until: Some(ClusterTime(140_000)),
        ..lost.clone()
    };
    let owing = OwingRecord {
        name: lease(),
        notes: vec![lost, refused],
    };
    let of = |object| {
        let name = lease();
        Record::Object(ObjectRecord { name, object })
    };
    vec![
        ("object", of(object)),
        ("object_of_no_holder", of(free)),
        ("object_in_watched_pod", of(in_pod)),
        ("object_of_session", of(of_session)),
        ("object_of_a_principal", of(owned)),
        ("gone_object", Record::GoneObject(gone)),
        ("owing", Record::Owing(owing)),
    ]
}
