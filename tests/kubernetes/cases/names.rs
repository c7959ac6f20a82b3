//! Names that Kubernetes cannot carry, and objects that are not the mirror's.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use ringfence_kubernetes::User;

use crate::site::Site;

const REFUSED: &str = "ringfence_kube_mirror_refused";
const UNFIT: &str = "ringfence_kube_mirror_unfit";

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_are_granted_and_told_and_hold_up_no_others() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    for odd in ["Leader", "a_b", "a..b", "a/b", "x~y", "-a"] {
        site.acquire(&session, odd).await.forget();
    }
    let elsewhere = session.acquire("bank/interest").send().await.unwrap();
    elsewhere.forget();
    let fine = site.acquire(&session, "a.b-c").await;

    let token = fine.token().get();
    site.objects.until_held("a.b-c", "worker", token).await;
    site.until_figure(UNFIT, |count| count == 6.0).await;
    let objects = site.objects.all().await;
    assert_eq!(objects.into_keys().collect::<Vec<_>>(), ["a.b-c"]);
    let log = site.cluster.log(0);
    assert!(
        log.contains("a_b") && log.contains("is no name of an object"),
        "{log}"
    );
}

/// A Lease as leader election by client-go leaves it.
fn foreign(name: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some("somebody-else".to_owned()),
            lease_duration_seconds: Some(40),
            ..LeaseSpec::default()
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_10_leases_of_others_are_never_touched() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let params = PostParams::default();
    let theirs = site
        .objects
        .leases
        .create(&params, &foreign("theirs"))
        .await;
    let theirs = theirs.unwrap();
    let admin = site.plane.client(User::Admin).await;
    let nodes: Api<Lease> = Api::namespaced(admin, "kube-node-lease");
    let node = nodes.create(&params, &foreign(&site.namespace)).await;
    let node = node.unwrap();

    let session = site.session("worker").await;
    let lease = site.acquire(&session, "theirs").await;
    let heartbeat = format!("k8s/kube-node-lease/{}", site.namespace);
    session.acquire(heartbeat).send().await.unwrap().forget();
    let ours = site.acquire(&session, "ours").await;
    let token = ours.token().get();
    site.objects.until_held("ours", "worker", token).await;
    site.until_figure(REFUSED, |count| count == 1.0).await;

    let now = site.objects.leases.get("theirs").await.unwrap();
    assert_eq!(now, theirs);
    let now = nodes.get(&site.namespace).await.unwrap();
    assert_eq!(now, node);
    nodes
        .delete(&site.namespace, &Default::default())
        .await
        .unwrap();

    // Once it is gone, the name is free for the mirror.
    site.objects.delete("theirs").await;
    lease.release().await.unwrap();
    let again = site.acquire(&session, "theirs").await;
    let token = again.token().get();
    site.objects.until_held("theirs", "worker", token).await;
    site.until_figure(REFUSED, |count| count == 0.0).await;
}
