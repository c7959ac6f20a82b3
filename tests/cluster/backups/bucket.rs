//! Backups in a bucket, and a cluster that is restored from one.

mod lost_answer;
mod refusals;

use ringfence_testkit::s3::SECRET;
use ringfence_tests::{Beside, S3};

use super::*;

/// `ringfence` with these arguments, with the bucket in its environment and some of it changed; a
/// variable without a value is not there.
fn with_bucket(cluster: &Cluster, s3: &S3, changed: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_tests::server());
    let endpoints = cluster.endpoints().join(",");
    command
        .env_clear()
        .envs(s3.variables())
        .envs(changed.iter().copied())
        .args(["--timeout", "20s", "--endpoints", &endpoints])
        .args(arguments);
    for (name, _) in changed.iter().filter(|(_, value)| value.is_empty()) {
        command.env_remove(name);
    }
    let output = command.output().expect("the command runs");
    let all = [&output.stdout[..], &output.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(!all.contains(SECRET) && !all.contains("hunter2"), "{all}");
    output
}

async fn one_node(s3: &S3, flags: Vec<String>) -> Cluster {
    Cluster::start(Options {
        nodes: 1,
        flags,
        variables: s3.variables(),
        beside: Beside::Anything,
        ..Options::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_restored_from_a_bucket() {
    let Some(s3) = S3::start() else { return };
    let mut cluster = one_node(&s3, Vec::new()).await;
    let mut journal = Journal::default();
    let names = (0..3).map(|at| format!("data/{at}"));
    grants(&cluster, &mut journal, names).await;
    let (before, newest) = (cluster_id(&cluster), journal.acts().last().unwrap().token);

    let url = s3.url("prod/x.backup");
    let digest = said(&with_bucket(&cluster, &s3, &[], &["backup", &url]));
    let verify = ["--json", "backup", "verify", &url, "--digest"];
    let shown = with_bucket(&cluster, &s3, &[], &[&verify[..], &[&*digest]].concat());
    let shown: serde_json::Value = serde_json::from_str(&said(&shown)).unwrap();
    assert_eq!(shown["last_token"], newest);
    // A backup in a bucket is the file that it would be on a disk.
    let file = s3.file("prod/x.backup").display().to_string();
    said(&ringfence(
        &cluster,
        &["backup", "verify", &file, "--digest", &digest],
    ));

    let again = refused(&with_bucket(&cluster, &s3, &[], &["backup", &url]));
    assert!(
        again.contains("exists already") && again.contains("--force"),
        "{again}"
    );
    let forced = with_bucket(&cluster, &s3, &[], &["backup", &url, "--force"]);
    let digest = said(&forced);
    // Behind a prefix it gets the name that a node would give it, which the same state gets again.
    said(&with_bucket(
        &cluster,
        &s3,
        &[],
        &["backup", &s3.url("named/")],
    ));
    let taken = with_bucket(&cluster, &s3, &[], &["--json", "backup", &s3.url("named/")]);
    let taken: serde_json::Value = serde_json::from_str(&said(&taken)).unwrap();
    let named = taken["file"].as_str().unwrap();
    let start = s3.url(&format!("named/ringfence-{before}-"));
    assert!(
        named.starts_with(&start) && named.ends_with(".backup"),
        "{named}"
    );
    said(&with_bucket(
        &cluster,
        &s3,
        &[],
        &["backup", "verify", named],
    ));
    let zeros = "0".repeat(64);
    let other = with_bucket(&cluster, &s3, &[], &[&verify[..], &[&*zeros]].concat());
    assert!(refused(&other).contains("do not restore"), "{other:?}");

    kill_all(&mut cluster);
    fs::remove_dir_all(cluster.data_dir(0)).unwrap();
    let flags = ["--restore", &url, "--digest", &digest];
    cluster.set_flags(flags.map(str::to_owned).into());
    cluster.spawn(0);
    let lineage = serde_json::json!([before]);
    let restored = || {
        formed(&cluster)
            .iter()
            .any(|node| node["lineage"] == lineage)
    };
    until(restored, "the cluster is restored").await;
    assert!(!cluster.log(0).contains(SECRET));

    // What was changed in the bucket, or cut, restores nothing.
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    for bytes in [changed, whole[..whole.len() / 2].to_vec(), Vec::new()] {
        fs::write(&file, &bytes).unwrap();
        let damaged = with_bucket(&cluster, &s3, &[], &["backup", "verify", &url]);
        assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
        let damaged = refused(&damaged);
        assert!(
            damaged.contains(&format!("backup {url} is damaged at byte")),
            "{damaged}"
        );
    }
    kill_all(&mut cluster);
    fs::remove_dir_all(cluster.data_dir(0)).unwrap();
    cluster.spawn(0);
    assert_eq!(cluster.wait_exit(0, LONG).await, Some(1));
    assert!(
        cluster.log(0).contains("is damaged at byte 0"),
        "{}",
        cluster.log(0)
    );
    assert!(!cluster.data_dir(0).join("identity").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_prefix_and_what_one_logs_is_the_digest_of_what_is_there() {
    let Some(s3) = S3::start() else { return };
    let cluster = Cluster::start(Options {
        flags: ["--backup-dir", &s3.url("shared/")]
            .map(str::to_owned)
            .into(),
        variables: s3.variables(),
        ..Options::default()
    })
    .await;
    for at in 0..cluster.len() {
        // Its own, or one that another node took a moment before.
        until(
            || figure(&cluster, at, LAST) > 0.0,
            "each node knows a backup",
        )
        .await;
    }
    let mut digests = 0;
    for log in (0..cluster.len()).map(|at| cluster.log(at)) {
        let Some(line) = log.lines().find(|line| line.contains("backup taken")) else {
            continue;
        };
        let value = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=")).unwrap();
            rest.split_whitespace().next().unwrap().trim_matches('"')
        };
        let (path, digest) = (value("path"), value("digest"));
        let verify = ["backup", "verify", path, "--digest", digest];
        said(&with_bucket(&cluster, &s3, &[], &verify));
        digests += 1;
    }
    assert!(digests > 0);
}

/// How many backups could not be taken.
const FAILURES: &str = "ringfence_backup_failures_total ";
/// When the last one was taken.
const LAST: &str = "ringfence_backup_last_success_timestamp_seconds ";

/// The value of a figure of a node.
fn figure(cluster: &Cluster, at: usize, name: &str) -> f64 {
    let metrics = get(cluster, at, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    value.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_backups_into_a_bucket_on_its_own_and_says_when() {
    let Some(s3) = S3::start() else { return };
    let to = |url: &str| -> Vec<String> { ["--backup-dir", url].map(str::to_owned).into() };
    let mut flags = to("s3://elsewhere/prod");
    // What a library logs of a request may have what proves the caller.
    flags.extend(["--log".into(), "trace,openraft=error".into()]);
    let mut cluster = one_node(&s3, flags).await;
    until_logged(&cluster, "no backup was taken").await;
    let log = cluster.log(0);
    assert!(log.contains("does not exist at http://") && log.contains("; make it"));
    assert!(!log.contains(SECRET), "not at any level");
    assert_eq!(
        (figure(&cluster, 0, FAILURES), figure(&cluster, 0, LAST)),
        (1.0, 0.0)
    );

    cluster.signal(0, Signal::Kill);
    cluster.set_flags(to(&s3.url("prod")));
    cluster.spawn(0);
    until_logged(&cluster, "backup taken").await;
    let mut files = s3.files();
    files.sort();
    let [file, digest] = &files[..] else {
        panic!("one backup, and its digest: {files:?}")
    };
    assert_eq!(
        digest.to_str(),
        Some(&*format!("{}.digest", file.display()))
    );
    let digest = fs::read_to_string(digest).unwrap();
    assert_eq!(file.parent(), Some(&*s3.file("prod")));
    let name = file.file_name().unwrap().to_str().unwrap();
    let url = s3.url(&format!("prod/{name}"));
    let verify = ["backup", "verify", &url, "--digest", digest.trim_end()];
    said(&with_bucket(&cluster, &s3, &[], &verify));
    let last = figure(&cluster, 0, LAST);
    assert!(last > 0.0);

    // The one that is there is young enough, so the next start takes none.
    cluster.signal(0, Signal::Kill);
    cluster.spawn(0);
    cluster.wait_until_serving(LONG).await;
    // Its name has the time that the state knows, which may be a little older.
    let known = || (figure(&cluster, 0, LAST) - last).abs() <= 60.0;
    until(known, "the node finds its last backup").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(s3.files().len(), 2);
    assert!(!cluster.log(0).contains(SECRET));
}

/// As where backups are files: its disk was lost, and it was just started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_formed_beside_the_backups_of_another_one_in_a_bucket_says_so() {
    let Some(s3) = S3::start() else { return };
    let flags = ["--backup-dir", &s3.url("prod")].map(str::to_owned);
    let mut cluster = one_node(&s3, flags.into()).await;
    until_logged(&cluster, "backup taken").await;
    let mut lost = vec![cluster_id(&cluster)];
    assert!(!cluster.log(0).contains("backups of another cluster"));
    // What else lies there hides none.
    for n in 10..40 {
        let beside = s3.file(&format!("prod/ringfence-0.1.{n}-linux.tar.gz"));
        fs::write(beside, "").unwrap();
    }
    // Whether its id is before or behind the other one's is left to chance.
    for _ in 0..3 {
        cluster.signal(0, Signal::Kill);
        fs::remove_dir_all(cluster.data_dir(0)).unwrap();
        let begun = cluster.log(0).len();
        cluster.spawn(0);
        let logged = |text| cluster.log(0)[begun..].contains(text);
        until(
            || logged("backups of another cluster lie where"),
            "a warning",
        )
        .await;
        until(|| logged("backup taken"), "its own backup").await;
        let log = cluster.log(0).split_off(begun);
        assert!(
            lost.iter()
                .any(|id| log.contains(&format!("ringfence-{id}-"))),
            "{log}"
        );
        lost.push(cluster_id(&cluster));
    }
}

async fn until_logged(cluster: &Cluster, text: &str) {
    until(|| cluster.log(0).contains(text), text).await;
}

async fn until(holds: impl Fn() -> bool, what: &str) {
    let holds = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let held = tokio::time::timeout(LONG, holds).await;
    held.unwrap_or_else(|_| panic!("not in time: {what}"));
}
