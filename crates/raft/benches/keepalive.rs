//! What it costs one node to keep many sessions alive.
//!
//! `cargo bench -p ringfence-raft --bench keepalive -- 1000000` opens that many sessions on a
//! single node with a real log and renews each of them every five seconds, for twenty seconds. The
//! figures are the whole process's, so the making of the requests is part of them. Then the node
//! is started again so that it takes one snapshot after the other, and the same is measured beside
//! that. Run as a test it only says how to measure.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_core::{Command, Identity, Millis, Open, OpenId, Opened, Outcome, Secret, SessionId};
use ringfence_raft::{KeepAlive, KeepAliveSource, Node, NodeConfig};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::MissedTickBehavior;

const SESSIONS: u64 = 1_000_000;
/// Sessions in one keep-alive request, about what a server gathers from its clients meanwhile.
const SESSIONS_PER_REQUEST: usize = 1_000;
const OPENS_IN_FLIGHT: u32 = 16_384;
const RENEW_EVERY: Duration = Duration::from_secs(5);
const MEASURED_ROUNDS: u32 = 4;
const IDLE: Duration = Duration::from_secs(3);
/// Long enough for the first sessions to outlive the opening of the last.
const TTL: Millis = Millis::from_secs(5 * 60);
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of log after which a snapshot is taken.
const NEVER: u64 = u64::MAX;
const ALWAYS: u64 = 1;
/// What `/proc/self/stat` counts in, the same on every Linux.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

type Sessions = Vec<(SessionId, Secret)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("keepalive: measures only under `cargo bench`");
        return;
    }
    let mut numbers = arguments.iter().filter_map(|a| a.parse::<u64>().ok());
    let count = numbers.next().unwrap_or(SESSIONS).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(count));
}

async fn measure(count: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let node = start(dir.path(), NEVER).await;
    let empty = resident_bytes();
    let begun = now();
    let sessions = open(&node, count).await;
    let opened_in = begun.elapsed().as_secs_f64();
    let held = resident_bytes().saturating_sub(empty);
    println!("sessions              {count:>12}");
    println!(
        "opened                {:>12.0} /s",
        count as f64 / opened_in
    );
    println!(
        "resident              {:>12.0} bytes/session",
        held as f64 / count as f64
    );

    let before = Reading::take(&node);
    tokio::time::sleep(IDLE).await;
    Reading::take(&node).since(&before).print("idle");

    measure_rounds(&node, &sessions, "renewing").await;
    node.shutdown().await;

    let begun = now();
    let node = start(dir.path(), ALWAYS).await;
    println!(
        "-- started again in    {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    measure_rounds(&node, &sessions, "renewing beside snapshots").await;
    let built = node.metrics().snapshots_built;
    assert!(built > 0, "a snapshot was taken");
    println!("snapshots             {built:>12}");
    node.shutdown().await;
}

async fn measure_rounds(node: &Node, sessions: &Sessions, what: &str) {
    // One round unmeasured: what came before has left work behind.
    drop(renew(node, sessions, 1).await);
    let before = Reading::take(node);
    let mut micros = renew(node, sessions, MEASURED_ROUNDS).await;
    Reading::take(node).since(&before).print(what);
    micros.sort_unstable();
    let at = |part: usize| micros[(micros.len() - 1) * part / 100] as f64 / 1e3;
    println!("keep-alive p50        {:>12.1} ms", at(50));
    println!("keep-alive p99        {:>12.1} ms", at(99));
    println!("keep-alive max        {:>12.1} ms", at(100));
}

async fn start(dir: &std::path::Path, snapshot_log_bytes: u64) -> Node {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let config = NodeConfig {
        peer_listen: address,
        initial_cluster: vec![("n1".to_owned(), address.to_string())],
        wal_segment_bytes: SEGMENT_BYTES,
        token_floor: Some(0),
        snapshot_log_bytes,
        ..NodeConfig::new("n1", dir)
    };
    let node = Node::start(config).await.unwrap();
    let mut status = node.watch_status();
    drop(status.wait_for(|status| status.serving).await.unwrap());
    node
}

async fn open(node: &Node, count: u64) -> Sessions {
    let sessions = Arc::new(Mutex::new(Sessions::with_capacity(count as usize)));
    let room = Arc::new(Semaphore::new(OPENS_IN_FLIGHT as usize));
    for n in 1..=count {
        let permit = room.clone().acquire_owned().await.unwrap();
        let bytes = u128::from(n).to_be_bytes();
        let secret = Secret::new(bytes);
        let open = Open {
            id: OpenId::new(bytes),
            secret,
            seen: None,
            ttl: TTL,
            identity: Identity::parse("bench").unwrap(),
            acquire: None,
        };
        let sessions = sessions.clone();
        node.submit(Command::Open(open), move |answer| {
            match answer.map(|applied| applied.outcome) {
                Ok(Outcome::Opened(Opened { session, .. })) => {
                    sessions.lock().unwrap().push((session, secret));
                }
                other => eprintln!("a session was not opened: {other:?}"),
            }
            drop(permit);
        });
    }
    drop(room.acquire_many(OPENS_IN_FLIGHT).await.unwrap());
    let mut sessions = std::mem::take(&mut *sessions.lock().unwrap());
    assert_eq!(sessions.len() as u64, count, "every session was opened");
    sessions.sort_unstable_by_key(|(session, _)| *session);
    sessions
}

/// Renews every session once in each round, evenly spread; how long each request took, in
/// microseconds.
async fn renew(node: &Node, sessions: &Sessions, rounds: u32) -> Vec<u64> {
    let requests = sessions.len().div_ceil(SESSIONS_PER_REQUEST);
    let mut ticks = tokio::time::interval(RENEW_EVERY / u32::try_from(requests).unwrap());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (took, mut times) = mpsc::unbounded_channel();
    for _ in 0..rounds {
        for part in sessions.chunks(SESSIONS_PER_REQUEST) {
            ticks.tick().await;
            let request = KeepAlive {
                sessions: part.to_vec(),
                acknowledged: Vec::new(),
                caller: None,
            };
            let (sent, took) = (now(), took.clone());
            node.submit_keep_alive(KeepAliveSource::unique(), request, move |answer| {
                let kept = answer.unwrap();
                assert!(kept.ended.is_empty(), "every session is alive");
                took.send(sent.elapsed().as_micros() as u64).unwrap();
            });
        }
    }
    drop(took);
    let mut all = Vec::with_capacity(requests * rounds as usize);
    while let Some(micros) = times.recv().await {
        all.push(micros);
    }
    assert_eq!(
        all.len(),
        requests * rounds as usize,
        "every request was answered"
    );
    all
}

/// Counters of the node and the process, or their differences.
struct Reading {
    at: Instant,
    seconds: f64,
    cpu_seconds: f64,
    bytes: u64,
    entries: u64,
    renew_entries: u64,
    renewed: u64,
    syncs: u64,
}

impl Reading {
    fn take(node: &Node) -> Self {
        let metrics = node.metrics();
        Self {
            at: now(),
            seconds: 0.0,
            cpu_seconds: cpu_seconds(),
            bytes: metrics.wal_bytes,
            entries: metrics.wal_entries,
            renew_entries: metrics.keep_alive_entries,
            renewed: metrics.keep_alive_sessions,
            syncs: metrics.wal_syncs,
        }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            at: self.at,
            seconds: (self.at - before.at).as_secs_f64(),
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            bytes: self.bytes - before.bytes,
            entries: self.entries - before.entries,
            renew_entries: self.renew_entries - before.renew_entries,
            renewed: self.renewed - before.renewed,
            syncs: self.syncs - before.syncs,
        }
    }

    fn print(&self, what: &str) {
        let rate = |count: u64| count as f64 / self.seconds;
        println!("-- {what}, {:.1} s", self.seconds);
        println!(
            "log                   {:>12.3} MB/s",
            rate(self.bytes) / 1e6
        );
        println!("entries               {:>12.1} /s", rate(self.entries));
        println!(
            "entries that renew    {:>12.1} /s",
            rate(self.renew_entries)
        );
        println!("sessions renewed      {:>12.0} /s", rate(self.renewed));
        println!("syncs                 {:>12.1} /s", rate(self.syncs));
        let share = 100.0 * self.cpu_seconds / self.seconds;
        println!("processor             {share:>12.1} % of a core");
        if let Some(renewed) = NonZeroU64::new(self.renewed) {
            let bytes = self.bytes as f64 / renewed.get() as f64;
            println!("log per renewal       {bytes:>12.2} bytes");
        }
    }
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // What follows the program's name, which may hold anything, begins with the third field.
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|f| f.parse::<u64>().unwrap())
        .sum();
    ticks as f64 / CLOCK_TICKS_PER_SECOND
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
