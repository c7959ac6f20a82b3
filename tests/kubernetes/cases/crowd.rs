//! Many leases that change at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use ringfence_kube::Observed;

use crate::objects::{assert_never_back, token_of};
use crate::site::{Site, within};

const LEASES: usize = 1_000;

/// How many acquires are under way at once.
const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::disallowed_methods,
    reason = "tells people how long it took; decides nothing"
)]
async fn a_thousand_leases_that_change_at_once_are_all_shown() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let story = site.objects.follow().await;
    let session = site.session("crowd").await;
    let began = Instant::now();
    let tokens: BTreeMap<String, u64> = stream::iter(0..LEASES)
        .map(|n| {
            let (site, session) = (&site, &session);
            async move {
                let name = format!("l{n:04}");
                let lease = site.acquire(session, &name).await;
                let token = lease.token().get();
                lease.forget();
                (name, token)
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let granted = began.elapsed();
    let shown = |found: &Observed, token: &u64| {
        found.content.holder.as_deref() == Some("crowd") && token_of(found) == Some(*token)
    };
    until_all(&site, &tokens, shown).await;
    println!(
        "{LEASES} grants in {granted:?}, shown after {:?}",
        began.elapsed()
    );

    // One entry ends them all.
    let began = Instant::now();
    within("the end of the session", session.close())
        .await
        .unwrap();
    let free = |found: &Observed, token: &u64| {
        found.content.holder.is_none() && token_of(found) == Some(*token)
    };
    until_all(&site, &tokens, free).await;
    println!("{LEASES} ends at once, shown after {:?}", began.elapsed());

    let versions = story.end().await;
    assert_never_back(&versions);
    // Nothing is written that is not news: at most a grant, a renewal or two, and the end.
    assert!(versions.len() <= 4 * LEASES, "{} writes", versions.len());
    println!("{} writes; {}", versions.len(), lag(&site).await);
}

async fn until_all(
    site: &Site,
    tokens: &BTreeMap<String, u64>,
    is: impl Fn(&Observed, &u64) -> bool,
) {
    // The mirror's own word first: to list them all again and again is more work than to write them.
    site.until_figure("ringfence_kube_mirror_objects", |objects| {
        objects >= LEASES as f64
    })
    .await;
    site.until_figure("ringfence_kube_mirror_pending", |pending| pending == 0.0)
        .await;
    within("all objects as they should be", async {
        loop {
            let objects = site.objects.all().await;
            let done = tokens
                .iter()
                .all(|(name, token)| objects.get(name).is_some_and(|found| is(found, token)));
            if done {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// What the node's histogram says of its lag.
async fn lag(site: &Site) -> String {
    const NAME: &str = "ringfence_kube_mirror_lag_seconds";
    let all = site.figure(0, &format!("{NAME}_count")).await;
    let mut bounds = (0..16).map(|power| 0.001 * f64::from(1 << power));
    let mut within = 0.0;
    let median = loop {
        let Some(bound) = bounds.next() else {
            break f64::INFINITY;
        };
        within = site
            .figure(0, &format!("{NAME}_bucket{{le=\"{bound}\"}}"))
            .await;
        if within * 2.0 >= all {
            break bound;
        }
    };
    format!("lag of {all} writes: half within {median} s ({within})")
}
