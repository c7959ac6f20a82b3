//! What a leader for life lives through.

use std::time::Duration;

use serde_json::json;

use crate::place::{LEASE, Place, within};

#[tokio::test(flavor = "multi_thread")]
async fn s1_1_of_two_unrelated_deployments_one_leads() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let (one, other) = (
        place.pod("one-0", None).await,
        place.pod("other-0", None).await,
    );
    let leader = place.lead(&one, "one").await;
    let next = place.waiting(&other, "other").await;
    place.nothing_ended(&leader).await;

    leader.release().await.unwrap();
    next.await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_2_the_next_leader_for_life_is_granted_the_lease_when_the_pod_of_the_last_has_ended() {
    let Some(place) = Place::start(3).await else {
        return;
    };
    let mut last = 0;
    let mut pod = place.pod("controller-0", None).await;
    let mut leader = place.lead(&pod, "controller-0").await;
    for life in 1..4 {
        assert!(leader.is_valid() && leader.token().get() > last);
        last = leader.token().get();
        let next = place.pod(&format!("controller-{life}"), None).await;
        let waiting = place.waiting(&next, next.name()).await;
        // As long as its Pod is there, no other client is granted the lease.
        place.nothing_ended(&leader).await;
        place.delete_by_force(pod.name()).await;
        let successor = waiting.await;
        assert_eq!(place.holder().await, Some(successor.token().get()));
        // Its Pod was deleted by force, and its process is still here: it is notified by a watch,
        // and believes no more. Until it is notified only a fence keeps its writes out.
        let why = within("the loss", leader.lost()).await;
        assert!(!leader.is_valid() && !why.is_own_doing(), "{why}");
        (pod, leader) = (next, successor);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_3_one_call_blocks_until_it_leads_and_afterwards_nothing_is_renewed_or_logged() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let pod = place.pod("quiet", None).await;
    let elector = place.elector(&pod, "quiet").await;
    let campaign = elector.campaign(LEASE).observe(false);
    let leader = within("a leader for life", campaign.lead()).await.unwrap();
    assert!(
        leader.remaining() > Duration::from_secs(1 << 40),
        "it has an end"
    );

    let mut before = place.cluster.applied(0).await;
    within("the log stands still", async {
        loop {
            // Not a wait for anything: the log has to stand still for all of this time.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let now = place.cluster.applied(0).await;
            if now == before {
                return;
            }
            before = now;
        }
    })
    .await;
    assert!(leader.is_valid());
    leader.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_6_what_is_not_ready_unknown_or_on_its_way_out_leads_on() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let node = place.node().await;
    let pod = place.pod("tough", Some(&node)).await;
    let leader = place.lead(&pod, "tough").await;

    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    place.say("tough", json!({"conditions": not_ready})).await;
    place.nothing_ended(&leader).await;
    place.say("tough", json!({"phase": "Unknown"})).await;
    place.nothing_ended(&leader).await;
    place.node_is_ready(&node, "Unknown").await;
    place.nothing_ended(&leader).await;
    // Marked by mistake: the node says that it lives.
    place.node_is_ready(&node, "True").await;
    place.out_of_service(&node).await;
    place.nothing_ended(&leader).await;
    // Being deleted: the kubelet has yet to say that its containers have ended.
    let gracefully = kube::api::DeleteParams::default();
    place.pods.delete("tough", &gracefully).await.unwrap();
    let found = place.pods.get("tough").await.unwrap();
    assert!(found.metadata.deletion_timestamp.is_some());
    place.nothing_ended(&leader).await;
}
