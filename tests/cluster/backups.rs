//! Backups of real clusters, and clusters that are restored from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ringfence_client::Client;
use ringfence_guard::follow::{FloorFollower, Options as Follow, Unheard};
use ringfence_guard::{Fence, Guard, LeaseName};
use ringfence_proto::Refusal;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{ConfigureRequest, Reason, SettingsChange, StatusRequest};
use ringfence_tests::{Act, Cluster, Journal, Options, Signal};
use tempfile::TempDir;

/// Long enough for a node of a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// A short greatest TTL makes for a short quiet time: this and a minute.
const TTL_MAX: Duration = Duration::from_secs(5);
/// How long quiet time is then, with some seconds for a busy machine.
const QUIET: Duration = Duration::from_secs(65 + 60);

fn short_lived() -> Options {
    Options {
        flags: vec!["--ttl-max".into(), "5s".into()],
        // A session that outlives a test would outlive the greatest TTL.
        probed: false,
        ..Options::default()
    }
}

/// `ringfence` with these arguments, on the whole cluster.
fn ringfence(cluster: &Cluster, arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_tests::server());
    command
        .env_clear()
        .args([
            "--timeout",
            "20s",
            "--endpoints",
            &cluster.endpoints().join(","),
        ])
        .args(arguments);
    command.output().expect("the command runs")
}

/// The same by the admin socket of the first node, which may do everything.
fn administer(cluster: &Cluster, arguments: &[&str]) -> String {
    let socket = cluster.data_dir(0).join("admin.sock");
    let mut command = Command::new(ringfence_tests::server());
    command
        .env_clear()
        .args([
            "--timeout",
            "20s",
            "--endpoints",
            &format!("unix:{}", socket.display()),
        ])
        .args(arguments);
    said(&command.output().expect("the command runs"))
}

/// What a command that succeeded has printed.
fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What a command that failed has said.
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "it succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A backup of the cluster, and its digest.
struct Taken {
    folder: TempDir,
    digest: String,
}

impl Taken {
    fn of(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup");
        let digest = said(&ringfence(
            cluster,
            &["backup", &file.display().to_string()],
        ));
        Self { folder, digest }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    fn flags(&self) -> Vec<String> {
        let file = self.file().display().to_string();
        let digest = self.digest.clone();
        ["--restore".into(), file, "--digest".into(), digest].into()
    }
}

fn kill_all(cluster: &mut Cluster) {
    for at in 0..cluster.len() {
        if cluster.pid(at).is_some() {
            cluster.signal(at, Signal::Kill);
        }
    }
}

/// Every disk is lost, and the cluster is restored on empty ones.
async fn restore(cluster: &mut Cluster, backup: &Taken) {
    kill_all(cluster);
    for at in 0..cluster.len() {
        fs::remove_dir_all(cluster.data_dir(at)).unwrap();
    }
    cluster.set_flags(backup.flags());
    for at in 0..cluster.len() {
        cluster.spawn(at);
    }
    cluster.wait_for_leader(LONG).await;
}

/// The cluster's id, as a node that answers has it.
fn cluster_id(cluster: &Cluster) -> String {
    status(cluster)["cluster"].as_str().unwrap().to_owned()
}

fn status(cluster: &Cluster) -> serde_json::Value {
    let output = ringfence(cluster, &["--json", "cluster", "status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let nodes = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut formed = nodes.filter(|node: &serde_json::Value| {
        node["cluster"]
            .as_str()
            .is_some_and(|cluster| !cluster.is_empty())
    });
    formed
        .next()
        .unwrap_or_else(|| panic!("no node is in a cluster: {text}"))
}

/// Grants and releases so many leases.
async fn grants(cluster: &Cluster, journal: &mut Journal, names: impl Iterator<Item = String>) {
    let caller = cluster.caller();
    let mut session = None;
    for (at, name) in names.enumerate() {
        // Nothing keeps it alive, so it is renewed by being opened again.
        if at % 20 == 0 {
            session = None;
        }
        let session = match &mut session {
            Some(session) => session,
            none => none.insert(caller.open("writer", TTL_MAX).await.unwrap()),
        };
        let invoked = Journal::now();
        let grant = caller.acquire(session, session.number(), &name, None).await;
        let (answered, token) = (Journal::now(), grant.unwrap().token);
        let released = caller
            .release(session, session.number(), &name, token)
            .await;
        released.unwrap();
        journal.add(Act {
            name,
            token,
            invoked,
            answered,
            released: Some(answered),
        });
    }
}

/// The first token that is granted behind quiet time.
async fn granted_after_quiet_time(cluster: &Cluster, name: &str) -> u64 {
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
async fn a_backup_is_taken_from_each_node_and_verified_with_its_digest() {
    let cluster = Cluster::start(Options::default()).await;
    let mut journal = Journal::default();
    grants(
        &cluster,
        &mut journal,
        (0..3).map(|at| format!("data/{at}")),
    )
    .await;
    let newest = journal.acts().last().unwrap().token;
    let folder = tempfile::tempdir().unwrap();
    for at in 0..cluster.len() {
        let file = folder
            .path()
            .join(format!("of-n{at}"))
            .display()
            .to_string();
        let endpoint = cluster.endpoints()[at].clone();
        let take = ["--endpoints", &endpoint, "backup", &file];
        let mut command = Command::new(ringfence_tests::server());
        let digest = said(&command.env_clear().args(take).output().unwrap());
        // Whichever node is asked, what was acknowledged before is in it.
        let verify = ["--json", "backup", "verify", &file, "--digest", &digest];
        let shown: serde_json::Value =
            serde_json::from_str(&said(&ringfence(&cluster, &verify))).unwrap();
        assert_eq!(shown["last_token"], newest);
        assert_eq!(shown["floors"], 3);
        assert_eq!(shown["cluster"].as_str(), Some(&*cluster_id(&cluster)));

        let again = refused(&ringfence(&cluster, &["backup", &file]));
        assert!(
            again.contains("exists already") && again.contains("--force"),
            "{again}"
        );
        said(&ringfence(&cluster, &["backup", &file, "--force"]));
        let other = refused(&ringfence(
            &cluster,
            &["backup", "verify", &file, "--digest", &"0".repeat(64)],
        ));
        assert!(other.contains("do not restore"), "{other}");
    }
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
    for act in journal.acts().iter().rev().take(20) {
        let fence: Fence = format!("{}#{}", act.name, act.token).parse().unwrap();
        let guard = Guard::new(LeaseName::parse(&act.name).unwrap());
        let stale = follower.admit(&guard, &fence).await.unwrap_err();
        assert_eq!(stale.reason(), "STALE_TOKEN", "{stale}");
    }

    let newest = journal.acts().iter().map(|act| act.token).max().unwrap();
    let heir = granted_after_quiet_time(&cluster, "bank/0").await;
    assert!(heir > newest, "{heir} is not above {newest}");
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
        &["--cluster", &before, "session", "evict", number],
        &["--cluster", &before, "lease", "revoke", "data/0", "1"],
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

/// What a node says at `/readyz`.
fn ready(cluster: &Cluster, at: usize) -> String {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(cluster.http(at)) else {
        return String::new();
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    if asked.is_ok() {
        stream.read_to_string(&mut answer).ok();
    }
    answer
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

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_backups_on_its_own_and_says_when() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("backups");
    let mut cluster = Cluster::start(Options {
        nodes: 1,
        flags: vec!["--backup-dir".into(), dir.display().to_string()],
        ..Options::default()
    })
    .await;
    let files = || fs::read_dir(&dir).map_or(0, Iterator::count);
    let taken = async {
        while !cluster.log(0).contains("backup taken") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, taken)
        .await
        .expect("a backup is taken");
    assert_eq!(files(), 1);
    let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    said(&ringfence(
        &cluster,
        &["backup", "verify", file.to_str().unwrap()],
    ));

    // The one that is there is young enough, so the next start takes none.
    cluster.signal(0, Signal::Kill);
    cluster.spawn(0);
    cluster.wait_until_serving(LONG).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(files(), 1);
}

/// The command line of a node that is the only first member of a restored cluster, on an empty
/// directory.
fn restored_alone(cluster: &Cluster, at: usize, data_dir: &Path, flags: &[String]) -> Command {
    let (name, peer) = (format!("n{}", at + 1), cluster.peer(at));
    let present = cluster.command(at);
    let mut command = Command::new(present.get_program());
    let mut before = String::new();
    for argument in present.get_args() {
        match before.as_str() {
            "--initial-cluster" => command.arg(format!("{name}={peer}")),
            "--data-dir" => command.arg(data_dir),
            _ => command.arg(argument),
        };
        before = argument.to_string_lossy().into_owned();
    }
    command.env_clear().args(flags);
    command
}

/// A process that ends with its test.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_14_an_old_majority_stops_when_it_meets_the_recovered_cluster() {
    let mut cluster = Cluster::start(Options {
        probed: false,
        ..Options::default()
    })
    .await;
    let mut journal = Journal::default();
    grants(
        &cluster,
        &mut journal,
        (0..5).map(|at| format!("data/{at}")),
    )
    .await;
    let (before, newest) = (cluster_id(&cluster), journal.acts().last().unwrap().token);
    // Each node has applied all of it, so the survivor has it whichever it is.
    let index = cluster.applied(0).await;
    for at in 0..cluster.len() {
        cluster.wait_until_applied(at, index, LONG).await;
    }
    kill_all(&mut cluster);

    // Another cluster's id changes nothing; the right one retires the directory.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("n3.backup");
    let recover = |id: &str| {
        let (dir, file) = (cluster.data_dir(2), file.display().to_string());
        let dir = dir.display().to_string();
        let arguments = ["recover", "--data-dir", &dir, "--accept-loss", id, &file];
        ringfence(&cluster, &arguments)
    };
    let other = refused(&recover(&"0".repeat(32)));
    assert!(other.contains("nothing was changed"), "{other}");
    let digest = said(&recover(&before));
    let shown = said(&ringfence(
        &cluster,
        &[
            "backup",
            "verify",
            file.to_str().unwrap(),
            "--digest",
            &digest,
        ],
    ));
    assert!(shown.contains(&format!("last token   {newest}")), "{shown}");
    cluster.spawn(2);
    assert_eq!(cluster.wait_exit(2, LONG).await, Some(1));
    let log = cluster.log(2);
    assert!(
        log.contains("is retired") && log.contains("RECOVERY.md"),
        "{log}"
    );

    let flags = [
        "--restore".into(),
        file.display().to_string(),
        "--digest".into(),
        digest,
    ];
    let data_dir = folder.path().join("restored");
    let mut command = restored_alone(&cluster, 2, &data_dir, &flags);
    let _restored = Ending(command.spawn().unwrap());
    let formed = async {
        while !ready(&cluster, 2).contains("ok") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, formed)
        .await
        .expect("it is restored");
    let after = cluster_id(&cluster);
    assert_ne!(after, before);

    // The old majority comes back, and finds that another cluster goes on in its place.
    cluster.spawn(0);
    cluster.spawn(1);
    for at in 0..2 {
        assert_eq!(cluster.wait_exit(at, LONG).await, Some(1), "n{}", at + 1);
        let log = cluster.log(at);
        assert!(
            log.contains("SUPERSEDED") && log.contains("RECOVERY.md"),
            "{log}"
        );
    }
    assert_eq!(cluster_id(&cluster), after);
}
