//! An API server that is gone, or does not answer: leases are granted all the same, and shown once
//! it is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_client::Session;
use ringfence_kube::Observed;
use ringfence_kubernetes::ControlPlane;

use crate::objects::{assert_never_back, token_of};
use crate::site::Site;

/// How often a lease is granted to measure what a grant costs.
const GRANTS: usize = 100;

/// A lost packet, a busy neighbour: what a median may differ by between two measurements.
const NOISE: Duration = Duration::from_millis(30);

/// The median of a grant and its release.
#[expect(
    clippy::disallowed_methods,
    reason = "measures what callers notice; decides nothing"
)]
async fn median(site: &Site, session: &Session) -> Duration {
    let mut took = Vec::with_capacity(GRANTS);
    for n in 0..GRANTS {
        let began = Instant::now();
        let lease = site.acquire(session, &format!("timed-{}", n % 10)).await;
        lease.release().await.unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    took[GRANTS / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_or_silent_api_server_slows_no_grant_and_is_caught_up_with() {
    let Some(plane) = ControlPlane::start().await else {
        return;
    };
    let mut site = Site::beside(Arc::new(plane), 1).await;
    let session = site.session("worker").await;
    let kept = site.acquire(&session, "kept").await;
    let kept_token = kept.token().get();
    site.objects.until_held("kept", "worker", kept_token).await;
    let with = median(&site, &session).await;

    // Connections stay open, nothing is answered.
    site.plane.pause_api_server();
    let paused = median(&site, &session).await;
    let lease = site.acquire(&session, "while-paused").await;
    let while_paused = lease.token().get();
    lease.forget();
    site.plane.resume_api_server();
    site.objects
        .until_held("while-paused", "worker", while_paused)
        .await;

    let plane = Arc::get_mut(&mut site.plane).expect("it is this test's own");
    plane.kill_api_server();
    let without = median(&site, &session).await;
    let lease = site.acquire(&session, "while-away").await;
    let while_away = lease.token().get();
    lease.forget();
    kept.release().await.unwrap();
    site.until_figure("ringfence_kube_mirror_connected", |connected| {
        connected == 0.0
    })
    .await;
    let plane = Arc::get_mut(&mut site.plane).expect("it is this test's own");
    plane.start_api_server().await;

    site.objects
        .until_held("while-away", "worker", while_away)
        .await;
    let free =
        |found: &Observed| found.content.holder.is_none() && token_of(found) == Some(kept_token);
    site.objects.until("kept", free).await;
    println!("a grant and its release: {with:?}; API server paused: {paused:?}, gone: {without:?}");
    assert!(paused < with * 3 + NOISE, "{with:?} became {paused:?}");
    assert!(without < with * 3 + NOISE, "{with:?} became {without:?}");

    // And it goes on as before.
    let story = site.objects.follow().await;
    let lease = site.acquire(&session, "afterwards").await;
    let token = lease.token().get();
    site.objects.until_held("afterwards", "worker", token).await;
    assert_never_back(&story.end().await);
}
