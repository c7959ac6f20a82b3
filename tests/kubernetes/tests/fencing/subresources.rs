//! Writes that reach the object by way of a subresource which keeps none of its annotations.

use ringfence_kube::TOKEN;
use ringfence_kube::policy::Carrier;
use serde_json::json;

use crate::stand::{CURRENT, Stand};
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
