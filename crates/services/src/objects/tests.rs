#![allow(clippy::unwrap_used)]

use ringfence_core::{Identity, LEVEL_RESTORE, ObjectMetadata, ObjectSpec, OpenId, Secret};

use super::*;
use crate::alone::{Alone, alone, proven, within};

async fn with_objects() -> (Alone, ObjectService) {
    let alone = alone().await;
    let knows_objects = async {
        while alone.node.read(|machine| machine.level()) < LEVEL_RESTORE {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("the level", knows_objects).await;
    let objects = ObjectService::new(alone.context.clone());
    (alone, objects)
}

/// A put of this holder.
fn put(version: Option<u64>, holder: &str, seconds: u32) -> WriteObject {
    let spec = ObjectSpec {
        holder: Identity::parse(holder).unwrap(),
        seconds,
        new_term: false,
        open: OpenId::new([7; 16]),
        secret: Secret::new([7; 16]),
    };
    WriteObject {
        name: LeaseName::parse("k8s/shop/web").unwrap(),
        version,
        pod: None,
        watched: None,
        write: ObjectWrite::Put {
            metadata: ObjectMetadata::default(),
            spec: Some(spec),
        },
    }
}

/// The endpoint compares what its holder writes with what there is, and its answers tell of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_term_of_an_unproven_process_makes_no_other_principal_its_holder() {
    let (alone, objects) = with_objects().await;
    let caller = |principal: &str| {
        let mut beside = Extensions::new();
        beside.insert(proven(principal));
        objects.caller(&beside)
    };
    let (elector, stranger) = (caller("anonymous"), caller("cert:cn:stranger"));
    let name = put(None, "pod-7", 60).name;
    let first = objects.write(&elector, put(None, "pod-7", 60)).await;
    let version = first.unwrap().object.version;
    alone.enforce().await;
    for verb in [Verb::Acquire, Verb::Revoke] {
        let judged = objects.judge_writer(&stranger, verb, &name);
        assert!(judged.is_err(), "{verb} without any rule");
    }
    let refused = objects
        .write(&stranger, put(Some(version), "pod-7", 61))
        .await;
    let early = matches!(&refused, Err(ObjectRefused::Refused(_)));
    assert!(early, "it costs the log an entry: {refused:?}");
    // It goes on, and becomes that of who may acquire it.
    assert!(objects.holds(&elector, &name));
    let renewed = objects
        .write(&elector, put(Some(version), "pod-7", 60))
        .await;
    let version = renewed.unwrap().object.version;
    alone
        .allow("cert:cn:stranger", Verb::Acquire, "k8s/shop/*")
        .await;
    let taken = objects
        .write(&stranger, put(Some(version), "pod-7", 60))
        .await;
    taken.unwrap();
    assert!(objects.holds(&stranger, &name) && !objects.holds(&elector, &name));
}

/// A process whose token has expired, which belongs to this Pod.
fn late(objects: &ObjectService, pod: &str, expired: bool) -> ObjectCaller {
    let mut beside = Extensions::new();
    beside.insert(Identified {
        process: PodUid::parse(pod).ok(),
        expires_unix: expired.then_some(1),
        ..proven("sa:prod:shop/web")
    });
    objects.caller(&beside)
}

/// The endpoint looks at an older state than the entry finds: what it lets pass must not grant.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_credential_renews_and_releases_and_begins_nothing() {
    let (alone, objects) = with_objects().await;
    let (fresh, late) = (late(&objects, "u1", false), late(&objects, "u1", true));
    let put = |version, holder| WriteObject {
        pod: Some(PodUid::parse("u1").unwrap()),
        ..put(version, holder, 60)
    };
    let again = |version, holder| {
        let mut write = put(version, holder);
        if let ObjectWrite::Put {
            spec: Some(spec), ..
        } = &mut write.write
        {
            spec.new_term = true;
            spec.open = OpenId::new([8; 16]);
        }
        write
    };
    let write = |caller: &ObjectCaller, write| {
        let (objects, caller) = (objects.clone(), caller.clone());
        async move { objects.write(&caller, write).await }
    };
    let name = put(None, "a").name;
    assert!(write(&late, put(None, "a")).await.is_err(), "a grant");
    let granted = write(&fresh, put(None, "a")).await.unwrap().object.version;
    for rehearsed in [again(Some(granted), "a"), put(Some(granted + 9), "a")] {
        let said = objects.rehearse(&late, rehearsed).await;
        assert!(said.is_err(), "{said:?}");
    }
    let kept = write(&late, put(Some(granted), "a")).await.unwrap();
    let version = kept.object.version;
    for refused in [
        again(Some(version), "a"),
        put(Some(granted), "a"),
        put(None, "a"),
        WriteObject {
            write: ObjectWrite::Delete { revoke: None },
            ..put(Some(version), "a")
        },
    ] {
        let said = write(&late, refused.clone()).await;
        assert!(said.is_err(), "{refused:?}: {said:?}");
    }
    assert!(objects.holds(&late, &name), "it holds on");
    let freed = write(&late, put(Some(version), "")).await.unwrap();
    let version = freed.object.version;
    assert!(freed.object.holder.is_none());
    assert!(write(&late, put(Some(version), "a")).await.is_err());
    alone.enforce().await;
    for read in [
        objects.get(&late, &name, Fresh::Any).await,
        objects.get_to_write(&late, &name, Fresh::Any).await,
    ] {
        assert!(read.is_err(), "{read:?}");
    }
}
