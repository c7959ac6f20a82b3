//! Hands on mirrored objects: what they do is undone, counted and reported.

use std::time::Duration;

use futures_util::future::join_all;
use ringfence_kube::{CLUSTER, MANAGED_BY, Observed, POSITION, TOKEN};
use serde_json::json;

use crate::objects::{position, token_of};
use crate::site::Site;

const UNDONE: &str = "ringfence_kube_mirror_writes_total{kind=\"undone\"}";

#[tokio::test(flavor = "multi_thread")]
async fn s0_7_edits_by_hand_are_undone_counted_and_told() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    let edits = [
        (
            "holder",
            json!({"spec": {"holderIdentity": "me"}}),
            "\"me\"",
        ),
        (
            "nobody",
            json!({"spec": {"holderIdentity": ""}}),
            "spec.holderIdentity",
        ),
        (
            "token",
            json!({"metadata": {"annotations": {TOKEN: "7"}}}),
            TOKEN,
        ),
        (
            "higher",
            json!({"metadata": {"annotations": {TOKEN: "9000000000000000000"}}}),
            TOKEN,
        ),
        (
            "label",
            json!({"metadata": {"labels": {MANAGED_BY: null}}}),
            MANAGED_BY,
        ),
        (
            "everything",
            json!({"metadata": {"labels": null, "annotations": null}, "spec": null}),
            MANAGED_BY,
        ),
        (
            "future",
            json!({"metadata": {"annotations": {POSITION: "9000000000000000000/1"}}}),
            "annotations",
        ),
        (
            "past",
            json!({"metadata": {"annotations": {POSITION: "0/0"}}, "spec": {"holderIdentity": "me"}}),
            "\"me\"",
        ),
        (
            "cluster",
            json!({"metadata": {"annotations": {CLUSTER: "ab"}}}),
            "annotations",
        ),
        (
            "times",
            json!({"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}}),
            "spec.renewTime",
        ),
    ];
    let undone = edits.iter().map(async |(name, edit, words)| {
        let lease = site.acquire(&session, name).await;
        let token = lease.token().get();
        let before = site.objects.until_held(name, "worker", token).await;
        site.objects.edit(name, edit).await;

        site.objects.until_told(name, words).await;
        let restored = site.objects.until_held(name, "worker", token).await;
        assert!(restored.labelled, "{name}");
        assert_eq!(
            restored.stamp.as_ref().unwrap().cluster,
            before.stamp.unwrap().cluster
        );
        assert_eq!(restored.content.transitions, before.content.transitions);
        lease.forget();
    });
    join_all(undone).await;
    site.until_figure(UNDONE, |undone| undone == edits.len() as f64)
        .await;
    assert_eq!(site.figure(0, UNDONE).await, edits.len() as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_beside_it_stays() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "noted").await;
    let token = lease.token().get();
    site.objects.until_held("noted", "worker", token).await;
    let note = json!({"metadata": {"annotations": {"team": "blue"}, "labels": {"shift": "night"}}});
    site.objects.edit("noted", &note).await;

    lease.release().await.unwrap();
    site.objects
        .until("noted", |found| found.content.holder.is_none())
        .await;
    let object = site.objects.leases.get("noted").await.unwrap();
    assert_eq!(object.metadata.annotations.unwrap()["team"], "blue");
    assert_eq!(object.metadata.labels.unwrap()["shift"], "night");
    assert_eq!(site.figure(0, UNDONE).await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_object_comes_back_with_its_token_and_its_transitions() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let mut token = 0;
    for holder in ["first", "second"] {
        let session = site.session(holder).await;
        let lease = site.acquire(&session, "leader").await;
        token = lease.token().get();
        site.objects.until_held("leader", holder, token).await;
        lease.release().await.unwrap();
    }
    let free = |found: &Observed| found.content.holder.is_none();
    let before = site.objects.until("leader", free).await;
    assert_eq!(before.content.transitions, 1);
    site.objects.delete("leader").await;

    let back = |found: &Observed| found.uid != before.uid;
    let after = site.objects.until("leader", back).await;
    assert_eq!(token_of(&after), Some(token));
    assert_eq!(after.content, before.content);
    assert!(position(&after) >= position(&before));
    site.objects.until_told("leader", "deleted").await;
}

/// Policies let the old holder write until the new token is shown.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_edits_an_object_again_and_again_does_not_hold_up_a_new_token() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "wanted").await;
    let token = lease.token().get();
    site.objects.until_held("wanted", "worker", token).await;
    lease.release().await.unwrap();

    let edits = async {
        for n in 0_u64.. {
            let edit = json!({"spec": {"holderIdentity": format!("meddler-{n}")}});
            site.objects.edit("wanted", &edit).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let grants = async {
        // By then an edit stands for some seconds before it is undone.
        site.until_figure(UNDONE, |undone| undone >= 6.0).await;
        let lease = site.acquire(&session, "wanted").await;
        let token = lease.token().get();
        let shown = site
            .objects
            .until("wanted", |found| token_of(found) == Some(token));
        let shown = tokio::time::timeout(Duration::from_secs(3), shown).await;
        assert!(shown.is_ok(), "a new token waits for a meddler");
    };
    tokio::select! {
        () = edits => {}
        () = grants => {}
    }
}
