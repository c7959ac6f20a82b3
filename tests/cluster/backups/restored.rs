//! A cluster that is restored on empty disks.

use std::path::Path;

use ringfence_client::Client;
use ringfence_guard::follow::{FloorFollower, Options as Follow, Unheard};
use ringfence_guard::{Fence, Guard, LeaseName};
use ringfence_proto::Refusal;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{ConfigureRequest, Reason, SettingsChange, StatusRequest};

use super::*;

/// How long quiet time is then, with some seconds for a busy machine.
const QUIET: Duration = Duration::from_secs(65 + 60);

/// The first token that is granted behind quiet time.
pub(super) async fn granted_after_quiet_time(cluster: &Cluster, name: &str) -> u64 {
    let caller = cluster.caller();
    let granted = async {
        loop {
            if let Ok(session) = caller.open("heir", TTL_MAX).await
                && let Ok(grant) = caller.acquire(&session, session.number(), name, None).await
            {
                return grant.token;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let granted = tokio::time::timeout(QUIET, granted).await;
    granted.expect("quiet time ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_13_a_restored_cluster_gives_nothing_back_that_was_taken_away() {
    let mut options = short_lived();
    let enforced = ["--access", "enforced"].map(str::to_owned);
    options.flags.extend(enforced);
    let mut cluster = Cluster::start(options).await;
    let binds = async {
        while !administer(&cluster, &["access", "mode"]).contains("enforced") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, binds)
        .await
        .expect("rights bind");
    for rule in [
        &["anonymous", "acquire", "bank/*"][..],
        &["anonymous", "observe", "bank/*"],
        &["anonymous", "backup"],
        &["local", "configure"],
        &["token:ci", "acquire", "deploy/*"],
    ] {
        administer(&cluster, &[&["access", "grant"], rule].concat());
    }
    let secret = administer(&cluster, &["access", "token", "create", "ci"]);
    let token_file = cluster.data_dir(0).with_extension("token");
    fs::write(&token_file, secret.lines().next().unwrap()).unwrap();
    let whoami = [
        "--token-file",
        token_file.to_str().unwrap(),
        "access",
        "whoami",
    ];
    said(&ringfence(&cluster, &whoami));
    let mut journal = Journal::default();
    grants(
        &cluster,
        &mut journal,
        (0..20).map(|at| format!("bank/{at}")),
    )
    .await;
    let before = cluster_id(&cluster);
    let backup = Taken::of(&cluster);

    administer(&cluster, &["access", "token", "revoke", "ci"]);
    administer(
        &cluster,
        &["access", "revoke", "token:ci", "acquire", "deploy/*"],
    );
    administer(&cluster, &["cluster", "configure", "--ttl-max", "1h"]);
    let revoked = ringfence(&cluster, &whoami);
    assert_eq!(revoked.status.code(), Some(77), "{revoked:?}");
    grants(
        &cluster,
        &mut journal,
        (0..1_000).map(|at| format!("bank/{at}")),
    )
    .await;
    restore(&mut cluster, &backup).await;

    // Another cluster, in the lineage of the first, that grants nothing yet.
    let now = status(&cluster);
    assert_ne!(now["cluster"].as_str(), Some(&*before));
    assert_eq!(now["lineage"], serde_json::json!([before]));
    assert!(now["quiet_ms"].as_u64().unwrap() > 0, "{now}");
    // The token is dead; the rule is back, and how old the rules are is said.
    let dead = refused(&ringfence(&cluster, &whoami));
    assert!(
        dead.contains("credential") || dead.contains("token"),
        "{dead}"
    );
    let rules = administer(&cluster, &["access", "list"]);
    assert!(rules.contains("token:ci"), "{rules}");
    let log = cluster.log(0);
    assert!(
        log.contains("rules and settings are as old as the backup"),
        "{log}"
    );

    // Every token of the first life is over, also those that the backup does not know.
    let caller = cluster.caller();
    for act in journal.acts().iter().step_by(97) {
        let verdict = caller.check(&act.name, act.token).await.unwrap();
        assert_eq!(verdict.verdict, i32::from(Verdict::Ended), "{verdict:?}");
    }
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let follower = FloorFollower::new(Follow {
        silence: LONG,
        unheard: Unheard::Refuse,
        ..Follow::default()
    });
    let (following, floors) = (follower.clone(), client.watch_floors("bank/"));
    tokio::spawn(async move { following.follow(floors).await });
    let live = async {
        while !follower.is_live() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, live)
        .await
        .expect("the follower is live");
    for act in journal.acts().iter().rev().take(3) {
        let fence: Fence = format!("{}#{}", act.name, act.token).parse().unwrap();
        let guard = Guard::new(LeaseName::parse(&act.name).unwrap());
        // No name has a floor yet, so its token counts as one that was never granted.
        let refused = follower.admit(&guard, &fence).await.unwrap_err();
        assert_eq!(refused.reason(), "UNKNOWN_TOKEN", "{refused}");
    }

    let newest = journal.acts().iter().map(|act| act.token).max().unwrap();
    let heir = granted_after_quiet_time(&cluster, "bank/0").await;
    assert!(heir > newest, "{heir} is not above {newest}");
    let name = LeaseName::parse("bank/0").unwrap();
    let risen = tokio::time::timeout(LONG, follower.risen(&name, None)).await;
    assert_eq!(risen.expect("the floor comes").get(), heir);
    let last = journal.acts().iter().rev().find(|act| act.name == "bank/0");
    let fence: Fence = format!("bank/0#{}", last.unwrap().token).parse().unwrap();
    let stale = follower.admit(&Guard::new(name), &fence).await.unwrap_err();
    assert_eq!(stale.reason(), "STALE_TOKEN", "{stale}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_15_what_belongs_to_the_old_cluster_changes_nothing_in_the_restored_one() {
    let mut cluster = Cluster::start(short_lived()).await;
    let mut journal = Journal::default();
    grants(
        &cluster,
        &mut journal,
        (0..5).map(|at| format!("data/{at}")),
    )
    .await;
    let before = cluster_id(&cluster);
    let opened = ["--json", "session", "open", "--ttl", "5s"];
    let opened = said(&ringfence(&cluster, &opened));
    let opened: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let handle = opened["session"].as_str().unwrap().to_owned();
    assert!(handle.ends_with(&before), "the handle names its cluster");
    let backup = Taken::of(&cluster);
    restore(&mut cluster, &backup).await;
    let after = cluster_id(&cluster);
    assert_ne!(after, before);

    let number = handle.split('.').next().unwrap();
    for old in [
        &["session", "close", &handle][..],
        &["lease", "acquire", "data/0", "--session", &handle],
        &[
            "--cluster",
            &before,
            "session",
            "evict",
            number,
            "--reason",
            "old",
        ],
        &[
            "--cluster",
            &before,
            "lease",
            "revoke",
            "data/0",
            "1",
            "--reason",
            "old",
        ],
        &[
            "--cluster",
            &before,
            "cluster",
            "configure",
            "--ttl-max",
            "1h",
        ],
        &["--cluster", &before, "cluster", "remove", "n3"],
        &["--cluster", &before, "cluster", "transfer-leader", "n2"],
    ] {
        let told = refused(&ringfence(&cluster, old));
        assert!(
            told.contains(&after) || told.contains("another cluster"),
            "{old:?}: {told}"
        );
    }
    // A call that names the old cluster is refused by the node itself, too.
    let mut request = tonic::Request::new(ConfigureRequest {
        change: Some(SettingsChange {
            ttl_max_ms: Some(3_600_000),
            ..SettingsChange::default()
        }),
        ..ConfigureRequest::default()
    });
    request
        .metadata_mut()
        .insert("ringfence-cluster", before.parse().unwrap());
    let endpoint = format!("http://{}", cluster.endpoints()[0]);
    let mut node = ClusterClient::connect(endpoint).await.unwrap();
    let told = node.configure(request).await.unwrap_err();
    let reason = Refusal::from_status(&told).unwrap().reason;
    assert_eq!(reason, Reason::ClusterChanged, "{told:?}");
    let settings = status_settings(&cluster).await;
    assert_eq!(settings.ttl_max_ms, 5_000);

    // The flag stays set, as it does in a StatefulSet, and one volume after the other is wiped: none of
    // them founds another cluster.
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Kill);
        fs::remove_dir_all(cluster.data_dir(at)).unwrap();
        let mut flags = backup.flags();
        flags.push("--replace-on-data-loss".into());
        cluster.set_flags(flags);
        cluster.spawn(at);
        let joined = async {
            while !ready(&cluster, at).contains("ok") {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let joined = tokio::time::timeout(LONG, joined).await;
        joined.unwrap_or_else(|_| panic!("n{} joins: {}", at + 1, cluster.log(at)));
        assert_eq!(cluster_id(&cluster), after, "n{}", at + 1);
        assert!(ready(&cluster, at).contains("--restore is still set"));
    }
}

async fn status_settings(cluster: &Cluster) -> ringfence_proto::v1::Settings {
    let endpoint = format!("http://{}", cluster.endpoints()[0]);
    let mut node = ClusterClient::connect(endpoint).await.unwrap();
    let status = node.status(StatusRequest {}).await.unwrap().into_inner();
    status.settings.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_digest_restores_nothing() {
    let mut cluster = Cluster::start(short_lived()).await;
    let backup = Taken::of(&cluster);
    kill_all(&mut cluster);
    for at in 0..cluster.len() {
        fs::remove_dir_all(cluster.data_dir(at)).unwrap();
    }
    let mut flags = backup.flags();
    flags[3] = "0".repeat(64);
    cluster.set_flags(flags);
    cluster.spawn(0);
    assert_eq!(cluster.wait_exit(0, LONG).await, Some(1));
    let log = cluster.log(0);
    assert!(
        log.contains(&backup.digest) && log.contains("do not restore"),
        "{log}"
    );
    assert!(!Path::new(&cluster.data_dir(0)).join("identity").exists());
}

/// An operator who looks at the rules first keeps callers away, and waits for quiet time once.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_time_runs_out_where_no_caller_comes() {
    let cluster = Cluster::start(Options {
        nodes: 1,
        flags: ["--quiet-time", "5s"].map(str::to_owned).into(),
        probed: false,
        ..Options::default()
    })
    .await;
    let over = async {
        while status(&cluster)["quiet_ms"] != 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let over = tokio::time::timeout(LONG, over).await;
    over.unwrap_or_else(|_| panic!("quiet time does not end: {}", status(&cluster)));
}
