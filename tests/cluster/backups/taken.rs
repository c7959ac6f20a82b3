//! How a backup is taken, by a caller and by a node.

use super::*;

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
async fn a_node_takes_backups_on_its_own_and_says_when() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("backups");
    let mut cluster = Cluster::start(Options {
        nodes: 1,
        flags: vec!["--backup-dir".into(), dir.display().to_string()],
        ..Options::default()
    })
    .await;
    let files = || {
        let found = fs::read_dir(&dir).into_iter().flatten();
        let mut found: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    logged(&cluster, "backup taken").await;
    let taken = files();
    let [file, digest] = &taken[..] else {
        panic!("a backup and its digest: {taken:?}")
    };
    assert_eq!(
        digest.to_str(),
        Some(&*format!("{}.digest", file.display()))
    );
    // As RECOVERY.md has it: --digest "$(cat NAME.digest)".
    let digest = fs::read_to_string(digest).unwrap();
    said(&ringfence(
        &cluster,
        &[
            "backup",
            "verify",
            file.to_str().unwrap(),
            "--digest",
            digest.trim_end(),
        ],
    ));

    // The one that is there is young enough, so the next start takes none.
    cluster.signal(0, Signal::Kill);
    cluster.spawn(0);
    cluster.wait_until_serving(LONG).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(files(), taken);
}
