//! For life or for as long as a lease lasts: both are there, and each says what it needs.

use std::time::Duration;

use ringfence_client::{Client, Elector, Pod, PodText, SessionOptions, Timings};
use ringfence_tests::{Beside, Cluster, Options};
use serde_json::{Value, json};

use crate::place::{LEASE, Place, TOKENS, within};

#[tokio::test(flavor = "multi_thread")]
async fn s1_7_leases_stay_selectable_with_their_times_beside_leaders_for_life() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let timings = Timings::new(seconds(8), seconds(6), seconds(1)).unwrap();
    let client = place.client().await;
    let by_lease = Elector::builder(&client).timings(timings).build();
    let leader = within("a leader", by_lease.campaign(LEASE).lead())
        .await
        .unwrap();
    assert!(leader.remaining() < Duration::from_secs(8));

    let pod = place.pod("for-life", None).await;
    let waiting = place.waiting(&pod, "for life").await;
    leader.release().await.unwrap();
    let for_life = waiting.await;
    assert!(for_life.remaining() > Duration::from_secs(1 << 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_10_a_cluster_that_watches_no_pods_says_which_mode_to_use() {
    let options = Options {
        nodes: 1,
        beside: Beside::Anything,
        probed: false,
        token_floor: Some(TOKENS),
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let text = PodText {
        namespace: "shop",
        name: "nobodys",
        uid: "0a1b",
        container: "",
    };
    let pod = Pod::parse(text).unwrap();
    let opened = within("an answer", client.open_session_for(&pod, "nobody")).await;
    let refused = opened.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("--kube-pods"), "{refused}");
    assert!(refused.contains("with a TTL"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_10_an_operator_sees_which_sessions_are_bound_to_which_pods() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let pod = place.pod("controller-0", None).await;
    let leader = place.lead(&pod, "for life").await;
    let client = place.client().await;
    let other = client.open_session(SessionOptions::default()).await;
    let other = other.unwrap();
    let (by_pod, by_ttl) = (leader.session().get(), other.id().get());

    let listed = place.ringfence(&["session", "list", "--json"]).await;
    let pod_of = |session: u64| {
        let lines = listed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let mut lines = lines.filter(|line: &Value| line["session_number"] == session);
        lines.next().map(|line| line["pod"].clone())
    };
    let expected = json!({
        "namespace": pod.namespace(), "name": "controller-0", "uid": pod.uid().as_str(),
        "container": "main",
    });
    assert_eq!(pod_of(by_pod), Some(expected), "{listed}");
    assert_eq!(pod_of(by_ttl), Some(Value::Null), "{listed}");
    let shown = place
        .ringfence(&["session", "get", &by_pod.to_string()])
        .await;
    let words = format!(
        "{}/controller-0 main ({})",
        pod.namespace(),
        pod.uid().as_str()
    );
    assert!(shown.contains(&words), "{shown}");
    let held = place.ringfence(&["lease", "get", LEASE]).await;
    assert!(held.contains("as long as its holder's Pod"), "{held}");
}
