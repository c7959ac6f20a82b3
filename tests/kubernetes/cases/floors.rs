//! Floors: what the mirror writes where no tenant may.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use ringfence_kube::{FLOORS, MANAGED_BY, MANAGER, Observed};
use ringfence_kubernetes::User;
use ringfence_tests::Signal;
use serde_json::json;

use crate::objects::{Objects, token_of};
use crate::site::Site;

/// The floors of a site's leases, for an admin.
async fn floors(site: &Site) -> Objects {
    Objects::of(site.plane.client(User::Admin).await, FLOORS)
}

/// A floor as the manifests bring it along.
async fn bring(site: &Site, name: &str) -> Lease {
    let metadata = json!({"name": name, "labels": {MANAGED_BY: MANAGER}});
    let (version, kind) = ("coordination.k8s.io/v1", "Lease");
    let floor = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    let floor: Lease = serde_json::from_value(floor).unwrap();
    let api: Api<Lease> = floors(site).await.leases;
    let made = api.create(&PostParams::default(), &floor).await;
    made.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_shows_each_new_token_and_never_an_older_one() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let floors = floors(&site).await;
    let name = format!("floor.{}.leader", site.namespace);
    let session = site.session("worker").await;
    // A grant that is older than its floor, and one that is newer.
    let first = site.acquire(&session, "leader").await;
    bring(&site, &name).await;
    let shows = |token: u64| move |found: &Observed| token_of(found) == Some(token);
    let found = floors.until(&name, shows(first.token().get())).await;
    assert_eq!(found.content.holder, None, "the token alone");
    first.release().await.unwrap();
    let second = site.acquire(&session, "leader").await;
    floors.until(&name, shows(second.token().get())).await;

    // Hands are undone; a new object of the same name is filled again.
    floors
        .edit(
            &name,
            &json!({"metadata": {"annotations": {"ringfence.io/token": "7"}}}),
        )
        .await;
    floors.until(&name, shows(second.token().get())).await;
    floors.delete(&name).await;
    second.release().await.unwrap();
    let third = site.acquire(&session, "leader").await;
    site.objects
        .until_held("leader", "worker", third.token().get())
        .await;
    assert!(
        floors.get(&name).await.is_none(),
        "it is not made by the mirror"
    );
    bring(&site, &name).await;
    floors.until(&name, shows(third.token().get())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_mirror_fills_the_floors_that_came_meanwhile() {
    let Some(mut site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "leader").await;
    let token = lease.token().get();
    site.objects.until_held("leader", "worker", token).await;
    site.cluster.signal(0, Signal::Kill);
    let name = format!("floor.{}.leader", site.namespace);
    bring(&site, &name).await;
    site.cluster.spawn(0);
    let shows = |found: &Observed| token_of(found) >= Some(token);
    floors(&site).await.until(&name, shows).await;
}
