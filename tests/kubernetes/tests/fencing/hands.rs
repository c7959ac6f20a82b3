//! Writes of those who are not fenced: they may do what they like, except for the mark.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::Carrier;
use serde_json::json;

use crate::stand::{CURRENT, Stand};
use crate::verdict::Verdict;
use crate::writer::Op;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_drops_or_lowers_a_mark_and_anybody_raises_it() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let fence = stand.fence(CURRENT);
    let holder = stand.writer(Some(&fence));
    assert_eq!(
        holder.write(Op::Create, "prices").await,
        Ok(Verdict::Admitted)
    );
    let objects: Api<ConfigMap> = Api::namespaced(stand.admin.clone(), &stand.namespace);
    let mark = |object: &ConfigMap| object.metadata.annotations.as_ref()?.get(TOKEN).cloned();
    let current = Some(CURRENT.to_string());

    let mut replaced = objects.get("prices").await.unwrap();
    replaced.metadata.annotations = None;
    replaced.data = Some([("apple".to_owned(), "4".to_owned())].into());
    let replaced = objects
        .replace("prices", &PostParams::default(), &replaced)
        .await;
    let replaced = replaced.unwrap();
    assert_eq!(mark(&replaced), current);
    assert_eq!(
        replaced.data.as_ref().unwrap()["apple"],
        "4",
        "the rest is theirs"
    );

    let lower = (CURRENT - 1).to_string();
    for text in [
        Some(lower.as_str()),
        Some("7"),
        Some("seven"),
        Some("9223372036854775808"),
        None,
    ] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {TOKEN: text}}}));
        let patched = objects
            .patch("prices", &PatchParams::default(), &patch)
            .await;
        assert_eq!(mark(&patched.unwrap()), current, "{text:?}");
    }
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "prices", "annotations": {TOKEN: "7"}}});
    let params = PatchParams::apply("somebody").force();
    let applied = objects
        .patch("prices", &params, &Patch::Apply(&applied))
        .await;
    assert_eq!(mark(&applied.unwrap()), current);

    let higher = (CURRENT + 1).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {TOKEN: higher}}}));
    let raised = objects
        .patch("prices", &PatchParams::default(), &patch)
        .await;
    assert_eq!(mark(&raised.unwrap()), Some(higher));
    assert_eq!(
        holder.write(Op::MergePatch, "prices").await,
        Ok(Verdict::Stale)
    );
}

/// A status is written under a name of its own, and its annotations are the object's.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_lowers_a_mark_by_way_of_the_status() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let labels = json!({"app": "shop"});
    let template = json!({"metadata": {"labels": labels},
                          "spec": {"containers": [{"name": "one", "image": "none"}]}});
    let annotations = json!({TOKEN: CURRENT.to_string()});
    stand
        .put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                    "metadata": {"name": "shop", "annotations": annotations},
                    "spec": {"selector": {"matchLabels": labels}, "template": template}}))
        .await;
    let objects: Api<Deployment> = Api::namespaced(stand.admin.clone(), &stand.namespace);

    for lower in [Some("7".to_owned()), None] {
        let mut object = objects.get("shop").await.unwrap();
        let annotations = object.metadata.annotations.as_mut().unwrap();
        match &lower {
            Some(lower) => drop(annotations.insert(TOKEN.to_owned(), lower.clone())),
            None => drop(annotations.remove(TOKEN)),
        }
        object.status.get_or_insert_default().observed_generation = Some(1);
        let written = objects
            .replace_status("shop", &PostParams::default(), &object)
            .await
            .unwrap();
        let mark = written.metadata.annotations.as_ref().unwrap().get(TOKEN);
        assert_eq!(mark, Some(&CURRENT.to_string()), "{lower:?}");
        let status = written.status.unwrap();
        assert_eq!(status.observed_generation, Some(1), "the rest is theirs");
    }
}
