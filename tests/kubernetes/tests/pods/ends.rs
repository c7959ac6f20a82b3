//! What ends a leader for life.

use ringfence_client::ReleaseError;
use serde_json::json;

use crate::place::{LEASE, Place, within};

#[tokio::test(flavor = "multi_thread")]
async fn s1_4_the_lease_belongs_to_the_pod_and_goes_with_it() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let pod = place.pod("controller", None).await;
    let leader = place.lead(&pod, "first life").await;
    let token = leader.token();
    place.delete_by_force("controller").await;

    // A Pod of the same name is another one, with a token of its own.
    let again = place.pod("controller", None).await;
    assert_ne!(again.uid(), pod.uid());
    let second = place.lead(&again, "second life").await;
    assert!(second.token() > token);
    // The first one hears of it when it asks for anything.
    let refused = within("an answer", leader.release()).await;
    assert!(matches!(refused, Err(ReleaseError::Lost(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_4_a_container_that_starts_again_takes_over_from_its_former_life() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let pod = place.pod("crashing", None).await;
    let first = place.lead(&pod, "crashing").await;
    let token = first.token();
    // Its process is gone without a word: it will never release.
    let _forgotten = first.forget();

    let second = place.lead(&pod, "crashing").await;
    assert!(second.token() > token);
    assert!(second.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_5_who_cannot_lead_yet_tries_until_it_can() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let (one, other) = (place.pod("one", None).await, place.pod("other", None).await);
    let leader = place.lead(&one, "one").await;
    let token = leader.token();
    let next = place.waiting(&other, "other").await;
    place.say("one", json!({"phase": "Failed"})).await;
    let next = next.await;
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_8_a_leader_in_the_middle_of_its_work_is_stopped_when_its_pod_is_declared_dead() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let pod = place.pod("busy", None).await;
    let elector = place.elector(&pod, "busy").await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let stopped = tell.clone();
    let campaign = elector.campaign(LEASE).on_stopped(move |stopped_with| {
        stopped
            .send(format!("stopped: {}", stopped_with.cause))
            .unwrap();
    });
    let working = tokio::spawn(campaign.run(move |leading| {
        let tell = tell.clone();
        async move {
            tell.send(format!("works as {}", leading.fence())).unwrap();
            std::future::pending::<()>().await;
        }
    }));
    let works = within("work", told.recv()).await.unwrap();
    assert!(works.starts_with("works as shop/leader#"), "{works}");

    // The process lives, and only the operator says that it does not.
    place.delete_by_force("busy").await;
    let stopped = within("the work is dropped", told.recv()).await.unwrap();
    assert!(stopped.contains("is gone"), "{stopped}");
    working.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_9_who_is_told_of_its_loss_can_end_its_process() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    for name in ["leading", "unwatched", "acquiring"] {
        let pod = place.pod(name, None).await;
        let campaign = place.elector(&pod, name).await.campaign(LEASE);
        let held = match name {
            "leading" => campaign.lead().await.unwrap(),
            "unwatched" => campaign.observe(false).lead().await.unwrap(),
            _ => {
                let session = place.session(&pod).await;
                session.acquire(LEASE).send().await.unwrap()
            }
        };
        // It asks for nothing from here on.
        place.say(name, json!({"phase": "Succeeded"})).await;
        let why = within("the loss", held.lost()).await;
        assert!(!held.is_valid() && !why.is_own_doing(), "{name}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_9_a_leader_for_life_that_is_revoked_hears_of_it_and_the_next_one_leads() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let (one, other) = (place.pod("one", None).await, place.pod("other", None).await);
    let leader = place.lead(&one, "one").await;
    let next = place.waiting(&other, "other").await;

    let token = leader.token().to_string();
    let revoke = ["lease", "revoke", LEASE, &token, "--reason", "drill"];
    place.ringfence(&revoke).await;

    let why = within("the loss", leader.lost()).await;
    assert!(why.to_string().contains("drill"), "{why}");
    // No TTL runs out: the next grant waits for nothing but the word of the old holder's client.
    assert!(next.await.token() > leader.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_11_evicted_preempted_and_completed_pods_block_nobody() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    for (name, status) in [
        ("evicted", json!({"phase": "Failed", "reason": "Evicted"})),
        (
            "preempted",
            json!({"phase": "Failed", "reason": "Preempting"}),
        ),
        ("completed", json!({"phase": "Succeeded"})),
    ] {
        let pod = place.pod(name, None).await;
        let leader = place.lead(&pod, name).await;
        let next_name = format!("after-{name}");
        let next = place.pod(&next_name, None).await;
        let waiting = place.waiting(&next, &next_name).await;
        place.say(name, status).await;
        let next = waiting.await;
        assert!(next.token() > leader.token());
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_11_a_dead_node_blocks_until_somebody_says_that_it_is_out_of_service() {
    let Some(place) = Place::start(1).await else {
        return;
    };
    let node = place.node().await;
    let pod = place.pod("stranded", Some(&node)).await;
    let leader = place.lead(&pod, "stranded").await;
    let token = leader.token();
    let next = place.pod("next", None).await;
    let waiting = place.waiting(&next, "next").await;

    place.node_is_ready(&node, "Unknown").await;
    place.nothing_ended(&leader).await;
    place.out_of_service(&node).await;
    let next = waiting.await;
    assert!(next.token() > token);
}
