//! A cluster that has lost its majority, and one that is restored from a survivor.

use std::path::Path;

use super::*;

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
