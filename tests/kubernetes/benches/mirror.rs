//! What the mirror takes: time until Kubernetes shows a grant, and memory.
//!
//! `cargo bench -p ringfence-kubernetes --bench mirror`, for real nodes beside a real API server:
//! - lag: 2,000 grants and as many ends, 50 a second, of 200 leases, and the time from the answer to
//!   the client until a watch of the API server shows the token; every grant finds its object free,
//!   so what is measured is one write and its way back;
//! - memory: what a node weighs with 10,000 leases held, with a mirror and without.
#![allow(clippy::unwrap_used)]

#[path = "../cases/objects.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod objects;
#[path = "../cases/site.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod site;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use ringfence_client::{Client, SessionOptions};
use ringfence_kube::Found;
use ringfence_tests::{Cluster, Options};

use crate::objects::token_of;
use crate::site::{LONG, Site, within};

/// Grants whose lag is measured.
const GRANTS: usize = 2_000;
/// Between two of them.
const PACE: Duration = Duration::from_millis(20);
/// Leases that they are of.
const NAMES: usize = 200;
/// Leases held while memory is looked at.
const HELD: usize = 10_000;
/// Acquires under way at once, for that.
const AT_ONCE: usize = 128;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("mirror: measures only under `cargo bench`");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let Some(site) = Site::start(3).await else {
        return;
    };
    lag(&site).await;
    let with = {
        let before = weight(&site.cluster).await;
        hold(&site.cluster, &format!("k8s/{}/m", site.namespace)).await;
        // The mirror's own word: to list them all again and again is more work than to write them.
        let shown = async {
            let leader = site.cluster.wait_for_leader(LONG).await;
            let objects = "ringfence_kube_mirror_objects";
            while site.figure(leader, objects).await < HELD as f64 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        tokio::time::timeout(LONG * 10, shown).await.unwrap();
        Weights::of(before, weight(&site.cluster).await)
    };
    drop(site);
    let plain = Cluster::start(Options::default()).await;
    let before = weight(&plain).await;
    hold(&plain, "plain/ns/m").await;
    let without = Weights::of(before, weight(&plain).await);
    println!("memory for {HELD} leases: leader with a mirror {with}, without {without}");
}

/// Prints how late objects show grants.
#[expect(clippy::disallowed_methods, reason = "measures what people notice")]
async fn lag(site: &Site) {
    let shown: Arc<Mutex<HashMap<u64, Instant>>> = Arc::default();
    let watching = tokio::spawn(watch(site.objects.leases.clone(), Arc::clone(&shown)));
    let session = site.session("measured").await;
    let mut pace = tokio::time::interval(PACE);
    let mut answered = Vec::with_capacity(GRANTS);
    for n in 0..GRANTS {
        pace.tick().await;
        let lease = site.acquire(&session, &format!("lag-{}", n % NAMES)).await;
        answered.push((lease.token().get(), Instant::now()));
        // It ends when the next grant of others is under way, so that the object shows it.
        tokio::spawn(async move {
            tokio::time::sleep(PACE * 20).await;
            lease.release().await.unwrap();
        });
    }
    let all = || {
        let shown = shown.lock().unwrap();
        answered.iter().all(|(token, _)| shown.contains_key(token))
    };
    within("all grants shown", async {
        while !all() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    watching.abort();
    let shown = shown.lock().unwrap();
    let mut late: Vec<Duration> = answered
        .iter()
        .map(|(token, at)| shown[token].saturating_duration_since(*at))
        .collect();
    late.sort();
    let at = |share: usize| late[(late.len() - 1) * share / 1_000];
    println!(
        "lag of {GRANTS} grants, {} a second: p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        1_000 / PACE.as_millis(),
        at(500),
        at(990),
        at(999),
        at(1_000)
    );
}

/// Notes when each token is first seen on an object by somebody who watches.
#[expect(clippy::disallowed_methods, reason = "measures what people notice")]
async fn watch(leases: kube::Api<Lease>, shown: Arc<Mutex<HashMap<u64, Instant>>>) {
    let mut version = "0".to_owned();
    loop {
        let events = leases.watch(&WatchParams::default(), &version).await;
        let mut events = events.unwrap().boxed();
        while let Some(event) = events.next().await {
            let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event.unwrap() else {
                continue;
            };
            version = lease.metadata.resource_version.clone().unwrap();
            if let Some(token) = token_of(&Found::of(&lease)) {
                let mut shown = shown.lock().unwrap();
                shown.entry(token).or_insert_with(Instant::now);
            }
        }
    }
}

/// Has so many leases granted to sessions that live as long as this process.
async fn hold(cluster: &Cluster, prefix: &str) {
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    // A session may hold 10,000 and not more; a few of them spread the load as services would.
    const SESSIONS: usize = 10;
    for part in 0..SESSIONS {
        let options = SessionOptions {
            identity: format!("holder-{part}"),
            ttl: Duration::from_secs(60),
        };
        let session = client.open_session(options).await.unwrap();
        stream::iter((0..HELD / SESSIONS).map(|n| format!("{prefix}-{part}-{n}")))
            .map(|name| session.acquire(name).wait(LONG).send())
            .buffer_unordered(AT_ONCE)
            .for_each(|lease| async {
                lease.unwrap().forget();
            })
            .await;
        std::mem::forget(session);
    }
}

/// What the leader keeps in memory, in KiB.
async fn weight(cluster: &Cluster) -> u64 {
    let leader = cluster.wait_for_leader(LONG).await;
    let pid = cluster.pid(leader).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().split_whitespace().next();
    number.unwrap().parse().unwrap()
}

/// Before and after.
struct Weights {
    before: u64,
    after: u64,
}

impl Weights {
    fn of(before: u64, after: u64) -> Self {
        Self { before, after }
    }
}

impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = self.after.saturating_sub(self.before);
        let mib = |kib: u64| kib / 1024;
        write!(f, "{} MiB (+{} MiB)", mib(self.after), mib(more))
    }
}
