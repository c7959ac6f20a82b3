//! What the mirror takes: time until Kubernetes shows a grant, and memory.
//!
//! `cargo bench -p ringfence-kubernetes --bench mirror`, for real nodes beside a real API server:
//! - lag: 2,000 grants and as many ends, 50 a second, of 200 leases, and the time from the answer to
//!   the client until a watch of the API server shows the token; every grant finds its object free,
//!   so what is measured is one write and its way back;
//! - memory: what a node weighs with 10,000 leases held, with a mirror and without. Both are new, and
//!   do the same but for the mirror.
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
use ringfence_kube::Observed;
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
/// How often it is looked at, with a mirror and without in turns.
const ROUNDS: usize = 3;
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
    drop(site);
    for round in 1..=ROUNDS {
        let with = with_mirror().await;
        let plain = Cluster::start(Options::default()).await;
        let without = Weights::of(&plain, "plain/ns/m", async {}).await;
        drop(plain);
        let more = with.after.all.saturating_sub(without.after.all);
        println!(
            "memory for {HELD} leases, round {round}: leader with a mirror {with}, without \
             {without}; the mirror {:.1} MB",
            megabytes(more)
        );
    }
}

/// What a leader weighs that mirrors all of its leases.
async fn with_mirror() -> Weights {
    let site = Site::start(3).await.expect("there is a Kubernetes");
    let leader = site.cluster.wait_for_leader(LONG).await;
    // The mirror's own word: to list them all again and again is more work than to write them.
    let shown = async {
        for (figure, is) in [("objects", HELD as f64), ("pending", 0.0)] {
            let figure = format!("ringfence_kube_mirror_{figure}");
            while site.figure(leader, &figure).await != is {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    };
    let shown = async { tokio::time::timeout(LONG * 10, shown).await.unwrap() };
    let leases = format!("k8s/{}/m", site.namespace);
    Weights::of(&site.cluster, &leases, shown).await
}

/// Prints how late objects show grants.
#[expect(clippy::disallowed_methods, reason = "measures what people notice")]
async fn lag(site: &Site) {
    let shown: Arc<Mutex<HashMap<u64, Instant>>> = Arc::default();
    let watching = tokio::spawn(watch(site.objects.leases.clone(), Arc::clone(&shown)));
    let session = site.session("measured").await;
    let mut pace = tokio::time::interval(PACE);
    let mut answered = Vec::with_capacity(GRANTS);
    let mut ends = tokio::task::JoinSet::new();
    for n in 0..GRANTS {
        pace.tick().await;
        let lease = site.acquire(&session, &format!("lag-{}", n % NAMES)).await;
        answered.push((lease.token().get(), Instant::now()));
        // It ends when the next grant of others is under way, so that the object shows it.
        ends.spawn(async move {
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
    while let Some(end) = ends.join_next().await {
        end.unwrap();
    }
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

/// Notes when each token is first seen on an object by a client that watches.
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
            if let Some(token) = token_of(&Observed::of(&lease)) {
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

/// What a process keeps in memory, in KiB.
#[derive(Clone, Copy)]
struct Weight {
    /// All that is resident, its program too.
    all: u64,
    /// Of it, what is in no file.
    own: u64,
}

impl Weight {
    async fn of_leader(cluster: &Cluster) -> Self {
        let leader = cluster.wait_for_leader(LONG).await;
        let pid = cluster.pid(leader).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.unwrap().split_whitespace().next();
            number.unwrap().parse().unwrap()
        };
        Self {
            all: number("VmRSS:"),
            own: number("RssAnon:"),
        }
    }
}

/// Before there were leases, and after.
struct Weights {
    before: Weight,
    after: Weight,
}

impl Weights {
    /// Has the leases granted, and waits for what is to follow.
    async fn of(cluster: &Cluster, leases: &str, followed: impl Future<Output = ()>) -> Self {
        let before = Weight::of_leader(cluster).await;
        hold(cluster, leases).await;
        followed.await;
        let after = Weight::of_leader(cluster).await;
        Self { before, after }
    }
}

impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { before, after } = self;
        write!(
            f,
            "{:.1} MB, {:.1} of it in no file (empty: {:.1}, {:.1})",
            megabytes(after.all),
            megabytes(after.own),
            megabytes(before.all),
            megabytes(before.own)
        )
    }
}

/// A million bytes.
fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1_024.0 / 1e6
}
