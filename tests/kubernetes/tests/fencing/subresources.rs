//! Writes that reach the object by way of a subresource which keeps none of its annotations.

use ringfence_kube::policy::{Carrier, LOWER};
use ringfence_kube::{CLUSTER, TOKEN};
use serde_json::json;

use crate::stand::{CURRENT, Form, Stand, until_judged};
use crate::verdict::Verdict;
use crate::writer::Op;

/// A write that did not raise the mark would let an older holder write behind it.
#[tokio::test(flavor = "multi_thread")]
async fn by_a_subresource_nothing_is_written_that_leaves_no_mark() {
    for carrier in [Carrier::Impersonate, Carrier::FieldManager] {
        // The floor is low, as an API server's copy may be: the mark is what is looked at.
        let Some(stand) = Stand::start(carrier, 2).await else {
            return;
        };
        let resources = json!({"requests": {"cpu": "100m"}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "one", "annotations": {TOKEN: (CURRENT - 1).to_string()}},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "one", "image": "none", "resources": resources}],
            },
        });
        stand.put(pod).await;
        let (newer, older) = (stand.fence(CURRENT), stand.fence(CURRENT - 1));
        let (newer, older) = (stand.writer(Some(&newer)), stand.writer(Some(&older)));
        for op in [Op::Resize, Op::Ephemeral] {
            let unstamped = newer.write(op, "one").await;
            assert_eq!(unstamped, Ok(Verdict::Unstamped), "{carrier} {op:?}");
            let own = older.write(op, "one").await;
            assert_eq!(own, Ok(Verdict::Admitted), "{carrier} {op:?}");
        }
        // The object itself first: from then on the older holder is excluded.
        let stamped = newer.write(Op::PatchPod, "one").await;
        assert_eq!(stamped, Ok(Verdict::Admitted), "{carrier}");
        for op in [Op::Resize, Op::Ephemeral] {
            let done = newer.write(op, "one").await;
            assert_eq!(done, Ok(Verdict::Admitted), "{carrier} {op:?}");
            let stale = older.write(op, "one").await;
            assert_eq!(stale, Ok(Verdict::Stale), "{carrier} {op:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_judged_like_the_pod_and_changes_no_mark() {
    for carrier in Carrier::ALL {
        bindings_are_judged(carrier).await;
    }
}

/// A Binding comes onto the Pod with its annotations, and its older path does not have the name of Pods.
pub(crate) async fn bindings_are_judged(form: impl Into<Form>) {
    let form = form.into();
    let Some(stand) = Stand::start(form, CURRENT).await else {
        return;
    };
    for older_path in [false, true] {
        let name = format!("bound-{older_path}");
        let container = json!({"name": "one", "image": "none"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {TOKEN: CURRENT.to_string()}},
            "spec": {"automountServiceAccountToken": false, "containers": [container]},
        });
        stand.put(pod).await;
        let (older, newer) = (stand.fence(CURRENT - 1), stand.fence(CURRENT));
        let none = json!({});
        for (fence, expected) in [(Some(&older), Verdict::Stale), (None, Verdict::Missing)] {
            let writer = stand.writer(fence.map(String::as_str));
            let judged = writer.bind(older_path, &name, none.clone()).await;
            assert_eq!(judged, Ok(expected), "{form:?} {older_path}");
        }
        // The API server takes up each policy in its own time; nothing is stored meanwhile.
        until_judged("the policy of Bindings", Verdict::Carried, || {
            let (probe, name) = (stand.admin_writer().dry(), name.clone());
            async move { probe.bind(older_path, &name, json!({TOKEN: "1"})).await }
        })
        .await;
        for annotation in [TOKEN, LOWER, CLUSTER] {
            let lowers = json!({annotation: "1"});
            let judged = stand.admin_writer().bind(older_path, &name, lowers).await;
            assert_eq!(judged, Ok(Verdict::Carried), "{form:?} {annotation}");
        }
        let rightful = stand.writer(Some(&newer));
        let judged = rightful.bind(older_path, &name, none).await;
        assert_eq!(judged, Ok(Verdict::Admitted), "{form:?} {older_path}");
    }
}
