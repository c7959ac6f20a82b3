//! Leaders of the cluster change, and the API server is away.

use std::sync::Arc;
use std::time::Duration;

use ringfence_kubernetes::ControlPlane;
use ringfence_tests::Signal;

use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn s1_11_what_happened_while_nobody_watched_is_found_by_the_next_leader() {
    let Some(place) = Place::start(3).await else {
        return;
    };
    let mut place = place;
    let pod = place.pod("unseen", None).await;
    let leader = place.lead(&pod, "unseen").await;
    let token = leader.token().get();
    let next = place.pod("next", None).await;
    let waiting = place.waiting(&next, "next").await;

    let node = place.cluster.wait_for_leader(Duration::from_secs(60)).await;
    place.cluster.signal(node, Signal::Kill);
    place.delete_by_force("unseen").await;
    assert!(waiting.await.token().get() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_2_an_api_server_that_is_away_ends_nobody() {
    let Some(plane) = ControlPlane::start().await else {
        return;
    };
    let place = Place::beside(Arc::new(plane), 1).await;
    let (one, lost) = (place.pod("one", None).await, place.pod("lost", None).await);
    let leader = place.lead(&one, "one").await;
    let session = place.session(&lost).await;
    place.until_figure("in_sync", |is| is == 1.0).await;

    let mut place = place;
    place.delete_by_force("lost").await;
    let plane = Arc::get_mut(&mut place.plane).expect("this test's own");
    plane.kill_api_server();
    // Several looks at both Pods that no server answers, and watches that cannot be begun again.
    place
        .until_figure("unanswered_total", |looks| looks >= 6.0)
        .await;
    for of in ["pods", "nodes"] {
        let restarts = format!("watch_restarts_total{{of=\"{of}\"}}");
        place.until_figure(&restarts, |count| count >= 3.0).await;
    }
    place.until_figure("in_sync", |is| is == 0.0).await;
    assert_eq!(place.holder().await, Some(leader.token().get()));

    let plane = Arc::get_mut(&mut place.plane).expect("this test's own");
    plane.start_api_server().await;
    crate::place::until_ended(&session).await;
    place.nothing_ended(&leader).await;
    place.until_figure("in_sync", |is| is == 1.0).await;
}
