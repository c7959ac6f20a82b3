//! A cluster gets TLS between its nodes, and another secret, while it serves.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_tests::{Caller, Cluster, Options, Signal};
use tokio::task::JoinHandle;

/// How long a client may have to repeat a request: a node that stops hands leadership over, and an
/// election takes half a second. The rest is for a machine that does other things as well.
const REPEATED_MAX: Duration = Duration::from_secs(5);
/// How long a node may take to come back.
const RESTART_MAX: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(10);
const HELD: &str = "held";

/// A file with a secret of 32 bytes from this one on.
fn secret(folder: &Path, byte: u8) -> String {
    let path = folder.join(format!("{byte}.secret"));
    let digits: Vec<String> = (byte..byte + 32)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    std::fs::write(&path, digits.concat()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    path.display().to_string()
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long a request took; decides nothing"
)]
fn now() -> Instant {
    Instant::now()
}

/// A client that holds one lease and acquires and releases another one, without a pause.
struct Busy {
    ends: Arc<AtomicBool>,
    /// The longest request in this round, in milliseconds.
    longest: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Busy {
    async fn start(cluster: &Cluster) -> (Self, u64) {
        let mut caller = cluster.caller();
        caller.try_for = Duration::from_secs(1);
        let session = caller.open("holder", TTL).await.unwrap();
        let grant = caller.acquire(&session, session.number(), HELD, None);
        let token = grant.await.unwrap().token;
        let busy = Self {
            ends: Arc::default(),
            longest: Arc::default(),
            done: Arc::default(),
            tasks: Vec::new(),
        };
        let (keeper, ends) = (caller.clone(), busy.ends.clone());
        let keeps = tokio::spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                keeper
                    .keep_alive(&session)
                    .await
                    .expect("the session lives");
                tokio::time::sleep(TTL / 20).await;
            }
        });
        let works = tokio::spawn(work(
            caller,
            busy.ends.clone(),
            busy.longest.clone(),
            busy.done.clone(),
        ));
        let tasks = vec![keeps, works];
        (Self { tasks, ..busy }, token)
    }

    /// Ends the round: how many requests it had, and how long the longest took.
    fn round(&self) -> (u64, Duration) {
        let longest = self.longest.swap(0, Ordering::Relaxed);
        (
            self.done.swap(0, Ordering::Relaxed),
            Duration::from_millis(longest),
        )
    }

    async fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no request failed");
        }
    }
}

/// Acquires and releases until it shall end.
async fn work(
    caller: Caller,
    ends: Arc<AtomicBool>,
    longest: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
) {
    let session = caller.open("worker", TTL).await.unwrap();
    let mut last = 0;
    while !ends.load(Ordering::Relaxed) {
        let began = now();
        let grant = caller.acquire(&session, session.number(), "worked", None);
        let token = grant.await.expect("an answer in time").token;
        let acquired = began.elapsed();
        assert!(token > last, "tokens increase: {token} behind {last}");
        last = token;
        let began = now();
        let released = caller.release(&session, session.number(), "worked", token);
        released.await.expect("an answer in time");
        let longer = acquired.max(began.elapsed()).as_millis() as u64;
        longest.fetch_max(longer, Ordering::Relaxed);
        done.fetch_add(2, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether `/readyz` of a node answers well.
async fn is_ready(cluster: &Cluster, at: usize) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(cluster.http(at)).await else {
        return false;
    };
    let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// Restarts every node with these flags, each when the one before is ready.
async fn roll(cluster: &mut Cluster, flags: &[String]) {
    cluster.set_flags(flags.to_vec());
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Terminate);
        let ended = cluster.wait_exit(at, RESTART_MAX).await;
        assert_eq!(ended, Some(0), "{}", cluster.log(at));
        cluster.spawn(at);
        let ready = async {
            while !is_ready(cluster, at).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ready = tokio::time::timeout(RESTART_MAX, ready).await;
        assert!(
            ready.is_ok(),
            "n{} is ready in time:\n{}",
            at + 1,
            cluster.log(at)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_gets_tls_and_another_secret_under_load_and_loses_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (secret(folder.path(), 1), secret(folder.path(), 101));
    let flag = |secret: &str| format!("--cluster-secret-file={secret}");
    let rounds = [
        (
            "permissive",
            vec![flag(&one), "--peer-tls-mode=permissive".to_owned()],
        ),
        ("required", vec![flag(&one)]),
        ("the second is trusted", vec![flag(&one), flag(&two)]),
        ("the second is shown", vec![flag(&two), flag(&one)]),
        ("the first is dropped", vec![flag(&two)]),
    ];

    let mut cluster = Cluster::start(Options::alone()).await;
    let (busy, held) = Busy::start(&cluster).await;
    for (round, flags) in &rounds {
        roll(&mut cluster, flags).await;
        let (requests, longest) = busy.round();
        println!("{round}: {requests} requests, the longest took {longest:?}");
        assert!(requests > 0, "{round}: the client got through");
        assert!(longest < REPEATED_MAX, "{round}: one took {longest:?}");
        let lease = cluster
            .caller()
            .get(HELD)
            .await
            .unwrap()
            .expect("it is held");
        let grant = lease.holder.expect("it is held");
        assert_eq!(grant.token, held, "{round}: the holder's token");
    }
    busy.end().await;

    // Nodes came without TLS in the permissive round alone.
    let log = cluster.log(0);
    let runs: Vec<&str> = log.split("CA of the cluster secret").collect();
    assert_eq!(runs.len(), 1 + rounds.len(), "{log}");
    for (at, run) in runs.iter().enumerate() {
        assert_eq!(run.contains("admitted without TLS"), at == 1, "{at}: {run}");
    }
    assert!(!log.contains("does not trust the CA"), "{log}");
    let secrets = [&one, &two].map(|path| std::fs::read_to_string(path).unwrap());
    for at in 0..cluster.len() {
        let log = cluster.log(at);
        assert!(secrets.iter().all(|secret| !log.contains(secret)), "{log}");
    }
}
