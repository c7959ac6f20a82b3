//! The one way in which a mark falls, and marks of other clusters.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use ringfence_kube::policy::{Carrier, Fencing, FencingSpec, LOWER};
use ringfence_kube::{CLUSTER, TOKEN};
use ringfence_kubernetes::User;
use serde_json::{Value, json};

use crate::stand::{CURRENT, Stand, until_judged, wish, within};
use crate::verdict::Verdict;
use crate::writer::Op;

/// A mark that no grant will reach in these tests.
const HIGH: u64 = 9_000_000_000_000_000_000;

fn mark(object: &ConfigMap) -> Option<String> {
    object.metadata.annotations.as_ref()?.get(TOKEN).cloned()
}

async fn annotate(client: &Client, stand: &Stand, annotations: Value) -> Result<ConfigMap, Error> {
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), &stand.namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    objects
        .patch("prices", &PatchParams::default(), &patch)
        .await
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Api(status)) if status.code == 403 => status.message,
        other => panic!("{other:?}"),
    }
}

/// An object whose mark a client has raised beyond the holder.
async fn locked_out(stand: &Stand) {
    stand
        .put(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "prices", "annotations": {TOKEN: HIGH.to_string()}}}),
        )
        .await;
    let fence = stand.fence(CURRENT);
    let holder = stand.writer(Some(&fence));
    let verdict = holder.write(Op::MergePatch, "prices").await;
    assert_eq!(verdict, Ok(Verdict::Stale));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_who_names_the_mark_lowers_it_once() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    locked_out(&stand).await;
    let (high, lower) = (HIGH.to_string(), (CURRENT - 1).to_string());

    // Not in passing, not with another mark's name, not upwards.
    let passing = annotate(&stand.admin, &stand, json!({TOKEN: lower})).await;
    assert_eq!(mark(&passing.unwrap()), Some(high.clone()));
    let other = json!({TOKEN: lower, LOWER: (HIGH - 1).to_string()});
    let words = refusal(annotate(&stand.admin, &stand, other).await);
    assert!(
        words.contains("names the mark 8999999999999999999"),
        "{words}"
    );
    let upwards = json!({TOKEN: (HIGH + 1).to_string(), LOWER: high});
    let words = refusal(annotate(&stand.admin, &stand, upwards).await);
    assert!(words.contains("asks for a lower mark"), "{words}");

    let lowering = json!({TOKEN: lower, LOWER: high});
    let lowered = annotate(&stand.admin, &stand, lowering.clone())
        .await
        .unwrap();
    assert_eq!(mark(&lowered), Some(lower.clone()));
    let fence = stand.fence(CURRENT);
    let holder = stand.writer(Some(&fence));
    let written = holder.write(Op::MergePatch, "prices").await;
    assert_eq!(written, Ok(Verdict::Admitted));

    // What stands on the object lowers nothing any more, and can be applied again.
    let again = annotate(&stand.admin, &stand, lowering).await.unwrap();
    assert_eq!(mark(&again), Some(CURRENT.to_string()));
    let none = json!({TOKEN: null, LOWER: CURRENT.to_string()});
    let removed = annotate(&stand.admin, &stand, none).await.unwrap();
    assert_eq!(mark(&removed), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_write_the_object_may_not_lower_its_mark() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    locked_out(&stand).await;
    // All rights in this namespace, and none in the cluster.
    let user = User::Ringfence;
    let arguments = [
        "create",
        "rolebinding",
        "owner",
        "--clusterrole=cluster-admin",
        &format!("--user={}", user.name()),
        &format!("--namespace={}", stand.namespace),
    ];
    stand.plane.kubectl(&arguments, "");
    let owner = stand.plane.client(user).await;
    let lowering = json!({TOKEN: (CURRENT - 1).to_string(), LOWER: HIGH.to_string()});
    let words = refusal(annotate(&owner, &stand, lowering).await);
    let expected = format!("ringfence: {} may not lower marks", user.name());
    assert!(words.contains(&expected), "{words}");
    let passing = annotate(&owner, &stand, json!({"team": "blue"})).await;
    assert_eq!(mark(&passing.unwrap()), Some(HIGH.to_string()));
}

/// The API server takes up each policy separately: the one that keeps marks may still be the one
/// from before the cluster was named while the one that judges them is not.
async fn until_kept(stand: &Stand, here: &str, there: &str) {
    let objects: Api<ConfigMap> = Api::namespaced(stand.admin.clone(), &stand.namespace);
    let taken = Patch::Merge(json!({"metadata": {"annotations": {TOKEN: "1", CLUSTER: there}}}));
    within("the mark's cluster is kept", async {
        for number in 0.. {
            let name = format!("pears-{number}");
            let annotations = json!({TOKEN: "2", CLUSTER: here});
            let metadata = json!({"name": name, "annotations": annotations});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            stand.put(object).await;
            let kept = objects.patch(&name, &PatchParams::default(), &taken).await;
            let kept = kept.unwrap().metadata.annotations.unwrap();
            if kept.get(CLUSTER).is_some_and(|of| of == here) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_another_cluster_locks_nobody_out() {
    let Some(mut stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let (here, there) = ("ab".repeat(16), "cd".repeat(16));
    stand.fencing = Fencing::new(FencingSpec {
        cluster: Some(here.clone()),
        ..wish(&stand.namespace, stand.carrier)
    })
    .unwrap();
    stand.kubectl("apply", &stand.fencing.manifests());
    stand
        .put(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "prices", "annotations": {TOKEN: HIGH.to_string(), CLUSTER: there}}}),
        )
        .await;
    let (newer, older) = (stand.fence(CURRENT + 1), stand.fence(CURRENT));
    let (newer, older) = (stand.writer(Some(&newer)), stand.writer(Some(&older)));
    until_judged("the copy's mark does not count", Verdict::Admitted, || {
        newer.write(Op::MergePatch, "prices")
    })
    .await;
    until_kept(&stand, &here, &there).await;
    // It is an object of this cluster now, and judged as such; no writer makes it another's in
    // passing.
    let foreign = json!({TOKEN: "1", CLUSTER: there});
    let kept = annotate(&stand.admin, &stand, foreign).await.unwrap();
    assert_eq!(mark(&kept), Some((CURRENT + 1).to_string()));
    let of = kept.metadata.annotations.unwrap().get(CLUSTER).cloned();
    assert_eq!(of, Some(here));
    let stale = older.write(Op::MergePatch, "prices").await;
    assert_eq!(stale, Ok(Verdict::Stale));
}
