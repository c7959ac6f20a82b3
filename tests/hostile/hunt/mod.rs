//! Hunts: hostile clients with a valid and small right, or without any, for as long as wanted, while nodes
//! are killed, stopped and restarted. Each answer that a hostile client gets is judged by the model's
//! rights; afterwards the log is replayed, and the history of the honest is checked.
//!
//! `RINGFENCE_HUNT_SECONDS` says for how long, and `RINGFENCE_HUNT_SEED` with which draws; a run prints
//! its seed. The draws are the same then, and the times are not.

mod bandit;
mod calls;
mod chaos;
mod figures;
mod honest;
mod judge;
mod known;
mod log;
mod messages;
mod raid;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use ringfence_check::blackbox::{self, Caps};
use ringfence_check::{Report, Verdict};
use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_tests::{Cluster, Journal, Signal};
use tokio::task::JoinSet;

use self::bandit::{Bandit, Shown};
use self::chaos::Chaos;
use self::figures::Figures;
use self::honest::Honest;
use self::known::Known;
use self::log::Dump;
use self::messages::Schema;
use self::raid::Raid;
use self::stage::Stage;
use crate::measure::{NODE_MEMORY_MAX, PATIENCE};
use crate::refused::local;

/// How long a hunt lasts unless `RINGFENCE_HUNT_SECONDS` says another time.
const SECONDS: u64 = 20;
/// How many of each kind of hostile client there are.
const RAIDERS: u64 = 4;
const OTHERS: u64 = 1;
/// How many requests a hunt has at least, in a second.
const PACE_MIN: u64 = 5;
/// How many requests that a node refuses for want of a right may reach the log: those of a node that
/// was started a moment ago, and does not know the rules again yet. One in so many.
const LOGGED_PART: u64 = 20;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value:?} is no number")))
}

fn time() -> Duration {
    Duration::from_secs(variable("RINGFENCE_HUNT_SECONDS").unwrap_or(SECONDS))
}

fn seed() -> u64 {
    let seed = variable("RINGFENCE_HUNT_SEED").unwrap_or_else(rand::random);
    println!("seed: RINGFENCE_HUNT_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_clients_get_nothing_beyond_their_rules_while_nodes_fail() {
    let (seed, time) = (seed(), time());
    let figures = Arc::new(Figures::default());
    let mut stage = Stage::set(&[]).await;
    let caller = stage.cluster.caller();
    let [bank, shop, mate] = stage.honest.each_ref().map(|token| caller.with_token(token));
    let honest = vec![bank.clone(), shop.clone(), bank, shop, mate];
    let honest = Honest::start(honest, &figures).await;
    let mut status = ClusterClient::new(caller.channel(0));
    let status = status.status(StatusRequest {}).await.unwrap();
    let cluster_id = status.into_inner().cluster_id;

    let bandits = vec![
        Bandit::with_small_right("raider", stage.raider.clone(), "token:raider"),
        Bandit::without_rights("idle", Shown::Token(stage.idle.clone()), Some("token:idle")),
        Bandit::without_rights("stranger", Shown::Nothing, None),
        Bandit::without_rights("forger", Shown::Garbage, None),
        Bandit::without_rights("banned", Shown::Barred(stage.banned.clone()), Some("token:banned")),
        Bandit::without_rights(
            "revoked",
            Shown::Barred(stage.revoked.clone()),
            Some("token:revoked"),
        ),
    ];
    let raid = Arc::new(Raid {
        endpoints: stage.cluster.endpoints(),
        schema: Schema::read(),
        known: Known::new(honest.stolen(), cluster_id),
        figures: Arc::clone(&figures),
        tokens: stage.honest.iter().chain([&stage.raider]).cloned().collect(),
        until: Journal::now() + time,
    });
    let mut raiders = JoinSet::new();
    for (kind, bandit) in (0..).zip(&bandits) {
        let many = if bandit.ruled { RAIDERS } else { OTHERS };
        for n in 0..many {
            let seed = seed.wrapping_add(100 * kind + n + 1);
            raiders.spawn(Arc::clone(&raid).attack(bandit.clone(), seed));
        }
    }

    let random = StdRng::seed_from_u64(seed);
    let mut chaos = Chaos::new(&mut stage.cluster, random, &figures, &stage.operator);
    chaos.disturb(raid.until).await;
    let peaks = chaos.peaks;
    while let Some(ended) = raiders.join_next().await {
        ended.expect("no hostile client has panicked");
    }
    let (grants, keep_alives) = honest.progress();
    println!("the honest: {grants} grants passed on, {keep_alives} keep-alives");
    let recording = honest.finish(seed).await;
    let acts = local(&stage.cluster, 0, &["audit", "--limit", "1000"]);
    let entries = at_rest(&mut stage.cluster).await.replay_all(&bandits, &recording, &figures);
    let ops = recording.operations.len();
    println!("{time:?}: {entries} entries, {ops} operations of the honest; memory at most {:?} MiB", peaks.map(|p| p >> 20));
    figures.show();

    for bandit in &bandits {
        let named = bandit.principal.as_ref().map_or("anonymous", |own| own.as_str());
        let act = acts.lines().find(|line| {
            let of = |word: &str| line.split_whitespace().any(|said| said == word);
            of(named) && !line.contains("local")
        });
        if let Some(act) = act {
            figures.found(&format!("an act of {named}: {act}"));
        }
    }
    nodes_are_well(&stage.cluster, peaks, &figures);
    let sent = figures.total("all of", "");
    let logged: u64 = ["Configure", "ChangeAccess", "Revoke", "Evict", "Operate"]
        .iter()
        .map(|kind| {
            let of = |bandit: &Bandit| figures.total(&format!("logged of {}: {kind}", bandit.name), "");
            bandits.iter().map(of).sum::<u64>()
        })
        .sum();
    assert!(logged <= sent / LOGGED_PART, "{logged} of {sent} were logged to be refused");
    figures.assert_nothing_was_found(seed);
    assert!(sent >= PACE_MIN * time.as_secs(), "{sent} requests are no hunt");
    assert!(grants > 0 && keep_alives > 0 && figures.total("faults", "") > 0);
    for came in ["answered", "PermissionDenied", "Unauthenticated"] {
        assert!(figures.total("all of", came) > 0, "none was {came}");
    }
}

/// The log of a cluster whose clients are done, of all of whose nodes the leader knows the most.
async fn at_rest(cluster: &mut Cluster) -> Dump {
    let leader = cluster.wait_for_leader(PATIENCE).await;
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Terminate);
    }
    for at in 0..cluster.len() {
        let ended = cluster.wait_exit(at, PATIENCE).await;
        assert_eq!(ended, Some(0), "n{}: {}", at + 1, cluster.log(at));
    }
    Dump::of(cluster, leader)
}

impl Dump {
    /// Replays the log, and holds the history of the honest against it and against itself; the entries.
    fn replay_all(
        &self,
        bandits: &[Bandit],
        recording: &ringfence_check::Recording,
        figures: &Figures,
    ) -> u64 {
        let entries = self.replay(bandits, figures);
        for (by, report) in [
            ("what clients saw", blackbox::check(recording, Caps::default())),
            ("the log", self.witnessed(recording)),
        ] {
            judge(by, &report, figures);
        }
        entries
    }
}

fn judge(by: &str, report: &Report, figures: &Figures) {
    println!("by {by}: {}\n{report}", report.verdict());
    if report.verdict() != Verdict::Valid {
        figures.found(&format!("by {by}: {}\n{report}", report.verdict()));
    }
}

/// No node has panicked or taken too much.
fn nodes_are_well(cluster: &Cluster, peaks: [u64; 3], figures: &Figures) {
    for (at, peak) in peaks.into_iter().enumerate() {
        if peak > NODE_MEMORY_MAX {
            figures.found(&format!("n{} took {} MiB", at + 1, peak >> 20));
        }
        let log = cluster.log(at);
        let bad = |line: &&str| line.contains("panicked") || line.contains(" ERROR ");
        for line in log.lines().filter(bad).take(3) {
            figures.found(&format!("n{} has logged: {line}", at + 1));
        }
    }
}
