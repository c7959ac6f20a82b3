//! The hunt with hostile clients.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_tests::Journal;
use tokio::task::JoinSet;

use super::bandit::{Bandit, Shown};
use super::chaos::Chaos;
use super::ends::{at_rest, nodes_are_well};
use super::figures::Figures;
use super::honest::Honest;
use super::known::Known;
use super::messages::Schema;
use super::raid::Raid;
use super::stage::Stage;
use super::{seed, time};
use crate::refused::local;

/// How many of each kind of hostile client there are.
const RAIDERS: u64 = 8;
const OTHERS: u64 = 1;
/// How many requests a hunt has at least, in a second.
const PACE_MIN: u64 = 5;
/// How many requests that a node refuses for want of a right may reach the log: those of a node that
/// was started a moment ago, and does not know the rules again yet. One in so many.
const LOGGED_PART: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_clients_get_nothing_beyond_their_rules_while_nodes_fail() {
    let (seed, time) = (seed(), time());
    let figures = Arc::new(Figures::default());
    let mut stage = Stage::set(&[]).await;
    let caller = stage.cluster.caller();
    let [bank, shop, mate] = stage
        .honest
        .each_ref()
        .map(|token| caller.with_token(token));
    let honest = vec![bank.clone(), shop.clone(), bank, shop, mate];
    let honest = Honest::start(honest, &figures).await;
    let mut status = ClusterClient::new(caller.channel(0));
    let status = status.status(StatusRequest {}).await.unwrap();
    let cluster_id = status.into_inner().cluster_id;

    let bandits = vec![
        Bandit::with_small_right("raider", stage.raider.clone(), "token:raider"),
        Bandit::without_rights("idle", Shown::Token(stage.idle.clone()), Some("token:idle")),
        Bandit::without_rights(
            "brief",
            Shown::Token(stage.brief.clone()),
            Some("token:brief"),
        ),
        Bandit::without_rights("stranger", Shown::Nothing, None),
        Bandit::without_rights("forger", Shown::Garbage, None),
        Bandit::without_rights(
            "banned",
            Shown::Barred(stage.banned.clone()),
            Some("token:banned"),
        ),
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
        tokens: stage
            .honest
            .iter()
            .chain([&stage.raider])
            .cloned()
            .collect(),
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
    let entries = at_rest(&mut stage.cluster)
        .await
        .replay_all(&bandits, &recording, &figures);
    let ops = recording.operations.len();
    println!(
        "{time:?}: {entries} entries, {ops} operations of the honest; memory at most {:?} MiB",
        peaks.map(|p| p >> 20)
    );
    figures.show();

    for bandit in &bandits {
        let named = bandit
            .principal
            .as_ref()
            .map_or("anonymous", |own| own.as_str());
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
            let of =
                |bandit: &Bandit| figures.total(&format!("logged of {}: {kind}", bandit.name), "");
            bandits.iter().map(of).sum::<u64>()
        })
        .sum();
    assert!(
        logged <= sent / LOGGED_PART,
        "{logged} of {sent} were logged to be refused"
    );
    figures.assert_nothing_was_found(seed);
    assert!(
        sent >= PACE_MIN * time.as_secs(),
        "{sent} requests are no hunt"
    );
    assert!(grants > 0 && keep_alives > 0 && figures.total("faults", "") > 0);
    for came in ["answered", "PermissionDenied", "Unauthenticated"] {
        assert!(figures.total("all of", came) > 0, "none was {came}");
    }
}
