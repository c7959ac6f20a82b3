//! What is asserted: memory, the time of keep-alives, and that the leader stays.

use std::time::{Duration, Instant};

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{KeepAliveRequest, KeepAliveResponse, StatusRequest};
use ringfence_tests::{Caller, Cluster, Options, Session};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// What a node may take in all of these tests, beside its state: the documented limits of one
/// hundred hostile connections are far above it, and it has never been reached.
pub(crate) const NODE_MEMORY_MAX: u64 = 1 << 30;
/// How many times longer than in a quiet cluster keep-alives may take.
const SLOWER_MAX: u32 = 3;
/// What no machine that runs other tests beside these can be held to: the attackers' own work is
/// done by the same two cores, in a build without optimization. While keep-alives waited behind those
/// of all clients it was 5 to 17 s.
const NOISE: Duration = Duration::from_secs(4);
/// Between two keep-alives.
const PAUSE: Duration = Duration::from_millis(40);
/// What is waited for at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The TTL of the well-behaved.
const TTL: Duration = Duration::from_secs(300);

/// Elections of a cluster that shares two cores with its attackers and other tests: a leader that is
/// starved for longer than this loses its place.
pub(crate) const PATIENT: [&str; 4] = ["--heartbeat-ms", "250", "--election-ms", "2000..3000"];

/// Held by a test whose attack takes all of the machine: two at once would measure each other.
pub(crate) static WHOLE_MACHINE: Mutex<()> = Mutex::const_new(());

/// A cluster, its leader and term, and a client that keeps its session alive.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) leader: usize,
    term: u64,
    quiet: Duration,
    client: Client,
}

/// A client that keeps its session alive.
struct Client {
    session: Session,
    ask: mpsc::Sender<KeepAliveRequest>,
    answers: Streaming<KeepAliveResponse>,
}

impl Stage {
    /// Three nodes, and what they take when nothing disturbs them.
    pub(crate) async fn set() -> Self {
        let options = Options {
            flags: PATIENT.map(str::to_owned).to_vec(),
            ..Options::alone()
        };
        let cluster = Cluster::start(options).await;
        let leader = cluster.wait_for_leader(PATIENCE).await;
        let caller = cluster.caller();
        let mut client = Client::new(&caller, leader).await;
        let quiet = client.slowest_for(Duration::from_secs(2)).await;
        let term = term(&caller, leader).await;
        Self {
            cluster,
            leader,
            term,
            quiet,
            client,
        }
    }

    /// Keeps the well-behaved client alive for so long, and asserts what has to hold.
    pub(crate) async fn holds_for(&mut self, time: Duration) {
        self.holds_within(time, NODE_MEMORY_MAX).await;
    }

    /// The same with another bound of memory, in bytes.
    pub(crate) async fn holds_within(&mut self, time: Duration, memory_max: u64) {
        let slowest = self.client.slowest_for(time).await;
        let allowed = (self.quiet * SLOWER_MAX).max(NOISE);
        let memory: Vec<u64> = (0..self.cluster.len())
            .map(|at| memory(self.cluster.pid(at).unwrap()))
            .collect();
        println!(
            "keep-alives: {slowest:?} at p99, {:?} when quiet; memory: {:?} MiB",
            self.quiet,
            memory.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>()
        );
        assert!(
            slowest <= allowed,
            "keep-alives took {slowest:?}, allowed: {allowed:?}"
        );
        for (at, bytes) in memory.into_iter().enumerate() {
            assert!(bytes <= memory_max, "node {at} has {} MiB", bytes >> 20);
        }
        let caller = self.cluster.caller();
        assert_eq!(
            term(&caller, self.leader).await,
            self.term,
            "the leader changed"
        );
    }
}

impl Stage {
    /// What the leader takes now, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory(self.cluster.pid(self.leader).unwrap())
    }

    /// Looks at the leader's memory for so long, and asserts that it never took more. What is refused soon
    /// is gone soon, so that a look at the end would see nothing of it.
    pub(crate) async fn peaks_within(&self, time: Duration, memory_max: u64) {
        let (begun, before) = (now(), self.memory());
        let mut peak = before;
        while begun.elapsed() < time {
            peak = peak.max(self.memory());
            sleep(Duration::from_millis(20)).await;
        }
        println!("memory: {} MiB, before {} MiB", peak >> 20, before >> 20);
        assert!(
            peak <= memory_max,
            "the leader had {} MiB, {} MiB allowed",
            peak >> 20,
            memory_max >> 20
        );
    }
}

impl Client {
    async fn new(caller: &Caller, at: usize) -> Self {
        let session = caller.open("well-behaved", TTL).await.unwrap();
        let (ask, asked) = mpsc::channel(1);
        let mut sessions = SessionsClient::new(caller.channel(at));
        let answers = sessions
            .keep_alive(ReceiverStream::new(asked))
            .await
            .unwrap();
        Self {
            session,
            ask,
            answers: answers.into_inner(),
        }
    }

    /// Keeps the session alive again and again; what the 99th of a hundred took.
    async fn slowest_for(&mut self, time: Duration) -> Duration {
        let begun = now();
        let mut took = Vec::new();
        while begun.elapsed() < time {
            let asked = now();
            let request = KeepAliveRequest {
                id: took.len() as u64,
                sessions: vec![self.session.handle.clone()],
                acknowledged: Vec::new(),
            };
            self.ask.send(request).await.unwrap();
            let answer = timeout(PATIENCE, self.answers.message()).await;
            let answer = answer.expect("an answer in time").unwrap().unwrap();
            assert_eq!(answer.refusal, None, "{answer:?}");
            assert!(answer.ended.is_empty(), "{answer:?}");
            took.push(asked.elapsed());
            sleep(PAUSE).await;
        }
        took.sort_unstable();
        assert!(
            took.len() >= 3,
            "too few keep-alives to judge: {}",
            took.len()
        );
        took[(took.len() * 99 / 100).min(took.len() - 1)]
    }
}

pub(crate) async fn term(caller: &Caller, at: usize) -> u64 {
    let mut cluster = ClusterClient::new(caller.channel(at));
    let status = timeout(PATIENCE, cluster.status(StatusRequest {})).await;
    status.expect("a status in time").unwrap().into_inner().term
}

/// The resident memory of a process, in bytes.
pub(crate) fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[expect(clippy::disallowed_methods, reason = "measures what a client waits")]
fn now() -> Instant {
    Instant::now()
}
