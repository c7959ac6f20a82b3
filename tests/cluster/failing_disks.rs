//! A disk that refuses a write: the process ends, and nothing that was acknowledged is lost.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_proto::v1::TransferLeaderRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_tests::{Act, Cluster, Journal, Options, Session, Signal};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Behind this length no file can be written: a log that has grown further than that fails.
const FILE_BYTES_MAX: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// A node's process that lives through SIGXFSZ, so that a write which is too long is an error, as
/// it is on a disk that fails; dropping it kills it.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(cluster: &Cluster, at: usize) -> Self {
        let node = cluster.command(at);
        let log = cluster.data_dir(at).with_extension("limited.log");
        let child = Command::new("sh")
            .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
            .arg(node.get_program())
            .args(node.get_args())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn limit_files(&self) {
        let limit = Rlimit {
            current: Some(FILE_BYTES_MAX),
            maximum: Some(FILE_BYTES_MAX),
        };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child
            .try_wait()
            .unwrap()
            .map(|status| status.code().unwrap_or(-1))
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One grant and its release, as often as it takes to be answered.
async fn grant(cluster: &Cluster, session: &Session, journal: &mut Journal) {
    let caller = cluster.caller();
    let (name, invoked) = (format!("data/{}", journal.len() % 7), Journal::now());
    let grant = caller.acquire(session, session.number(), &name, None).await;
    let token = grant.unwrap().token;
    let answered = Journal::now();
    let released = Journal::now();
    caller
        .release(session, session.number(), &name, token)
        .await
        .unwrap();
    journal.add(Act {
        name,
        token,
        invoked,
        answered,
        released: Some(released),
    });
}

async fn lead(cluster: &Cluster, at: usize) {
    let led = tokio::time::timeout(PATIENCE, async {
        while cluster.leader().await != Some(at) {
            let mut client = ClusterClient::new(cluster.caller().channel(at));
            let node_id = at as u64 + 1;
            // Refused until the node has caught up, or while no node leads.
            client
                .transfer_leader(TransferLeaderRequest { node_id })
                .await
                .ok();
        }
    });
    led.await.expect("the node leads when it is asked to");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_log_cannot_be_written_ends_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::start(Options::default()).await;
    let caller = cluster.caller();
    let session = caller
        .open("holder", Duration::from_secs(120))
        .await
        .unwrap();
    let held = caller
        .acquire(&session, session.number(), "held", None)
        .await;
    let held = held.unwrap();
    let mut journal = Journal::default();
    let victim = 0;
    cluster.signal(victim, Signal::Kill);
    let mut process = Process::start(&cluster, victim);
    lead(&cluster, victim).await;

    process.limit_files();
    let ended = tokio::time::timeout(2 * PATIENCE, async {
        loop {
            if let Some(code) = process.exit_code() {
                return code;
            }
            grant(&cluster, &session, &mut journal).await;
        }
    });
    let code = ended
        .await
        .expect("the process ends when its log cannot be written");
    let log = process.logged();
    assert_eq!(code, 1, "{log}");
    for words in [
        "the node stopped on its own",
        "storage failed",
        "cannot write",
        ".wal",
    ] {
        assert!(log.contains(words), "`{words}` is not in: {log}");
    }
    assert!(!log.contains("panicked"), "{log}");
    println!("it ended after {} grants", journal.len());

    // The others go on, and the node comes back with a disk that works.
    for _ in 0..5 {
        grant(&cluster, &session, &mut journal).await;
    }
    cluster.spawn(victim);
    lead(&cluster, victim).await;
    grant(&cluster, &session, &mut journal).await;
    let verdict = cluster.caller().check("held", held.token).await.unwrap();
    assert_eq!(verdict.verdict, 1, "the grant is in force: {verdict:?}");
    journal.check().unwrap();
}
