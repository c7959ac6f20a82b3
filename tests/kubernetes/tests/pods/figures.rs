//! What operators see of the Pods that are followed.

use std::time::Duration;

use ringfence_kubernetes::figure;
use serde_json::json;

use crate::place::{Place, until_ended, within};

impl Place {
    /// Waits until a figure of the only node's is what it should be.
    pub(crate) async fn until_figure(&self, name: &str, is: impl Fn(f64) -> bool) {
        let address = self.cluster.http(0);
        within(name, async {
            let name = format!("ringfence_kube_pods_{name}");
            while !figure(&address, &name).await.is_some_and(&is) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_pods_and_sessions_are_followed_is_shown() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    place.until_figure("active", |is| is == 1.0).await;
    // Nothing is to be watched: so nothing is missing.
    place.until_figure("in_sync", |is| is == 1.0).await;
    place.until_figure("watches", |count| count == 0.0).await;

    let (one, other) = (place.pod("one", None).await, place.pod("other", None).await);
    let first = place.session(&one).await;
    let second = place.session(&other).await;
    place.until_figure("followed", |count| count == 2.0).await;
    place.until_figure("sessions", |count| count == 2.0).await;
    // Both are in one namespace; the other watch is of nodes.
    place.until_figure("watches", |count| count == 2.0).await;
    place.until_figure("in_sync", |is| is == 1.0).await;

    place.say("one", json!({"phase": "Failed"})).await;
    until_ended(&first).await;
    place.delete_by_force("other").await;
    until_ended(&second).await;
    for seen in ["failed", "gone"] {
        let ended = format!("ended_total{{seen=\"{seen}\"}}");
        place.until_figure(&ended, |count| count == 1.0).await;
    }
    place.until_figure("followed", |count| count == 0.0).await;
    place.until_figure("watches", |count| count == 0.0).await;
}
