//! A cluster whose disks are lost, and whose nodes were started again before anybody looked.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_formed_without_its_backup_says_so_and_is_restored_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = short_lived();
    let dir = folder.path().join("backups").display().to_string();
    options.flags.extend(["--backup-dir".into(), dir]);
    let flags = options.flags.clone();
    let mut cluster = Cluster::start(options).await;
    let mut journal = Journal::default();
    grants(&cluster, &mut journal, ["held".to_owned()].into_iter()).await;
    logged(&cluster, "backup taken").await;
    let (backup, lost) = (Taken::of(&cluster), cluster_id(&cluster));

    kill_all(&mut cluster);
    start_again(&mut cluster, flags, true).await;
    assert_ne!(cluster_id(&cluster), lost);
    let log = logged(&cluster, "backups of another cluster lie where").await;
    assert!(log.contains(&format!("ringfence-{lost}-")), "{log}");

    // On the disks of the cluster that was formed meanwhile, a restore does nothing, and says so.
    kill_all(&mut cluster);
    start_again(&mut cluster, backup.flags(), false).await;
    assert!(status(&cluster)["lineage"].as_array().unwrap().is_empty());
    let waiting = async {
        while !ready(&cluster, 0).contains("#it-was-formed-without-the-backup") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    waited.unwrap_or_else(|_| panic!("{}", ready(&cluster, 0)));

    // By the runbook.
    kill_all(&mut cluster);
    start_again(&mut cluster, backup.flags(), true).await;
    assert_eq!(status(&cluster)["lineage"], serde_json::json!([lost]));
    let heir = restored::granted_after_quiet_time(&cluster, "held").await;
    let newest = journal.acts().iter().map(|act| act.token).max().unwrap();
    assert!(heir > newest, "{heir} is not above {newest}");
}

async fn start_again(cluster: &mut Cluster, flags: Vec<String>, with_empty_disks: bool) {
    cluster.set_flags(flags);
    for at in 0..cluster.len() {
        if with_empty_disks {
            fs::remove_dir_all(cluster.data_dir(at)).unwrap();
        }
        cluster.spawn(at);
    }
    until_formed(cluster, cluster.len()).await;
}
