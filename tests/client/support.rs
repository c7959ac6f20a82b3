//! Clusters, clients, proxies before them, and worker processes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ringfence_client::{Client, HeldLease, Moment, Session, SessionOptions};
use ringfence_tests::{Cluster, Options};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::proxy::Proxy;

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(90);
/// Over soon, and survives a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Nodes with tokens from 1 on.
pub(crate) async fn cluster(nodes: usize) -> Cluster {
    Cluster::start(of(nodes, Options::default())).await
}

/// As [`cluster`], while no other cluster of this process runs.
pub(crate) async fn cluster_alone(nodes: usize) -> Cluster {
    Cluster::start(of(nodes, Options::alone())).await
}

fn of(nodes: usize, options: Options) -> Options {
    Options {
        nodes,
        token_floor: Some(0),
        ..options
    }
}

/// Nodes that clients reach through proxies only.
pub(crate) async fn behind_proxies(nodes: usize) -> (Cluster, Vec<Proxy>) {
    behind_proxies_with(of(nodes, Options::default())).await
}

/// As [`behind_proxies`], while no other cluster of this process runs.
pub(crate) async fn behind_proxies_alone(nodes: usize) -> (Cluster, Vec<Proxy>) {
    behind_proxies_with(of(nodes, Options::alone())).await
}

async fn behind_proxies_with(options: Options) -> (Cluster, Vec<Proxy>) {
    let nodes = options.nodes;
    let mut proxies = Vec::new();
    for _ in 0..nodes {
        proxies.push(Proxy::start().await);
    }
    let addresses = proxies.iter().map(|proxy| proxy.address().to_owned());
    let options = Options {
        advertise_client: addresses.collect(),
        ..options
    };
    let cluster = Cluster::start(options).await;
    for (proxy, node) in proxies.iter().zip(cluster.endpoints()) {
        proxy.point_to(&node);
    }
    (cluster, proxies)
}

pub(crate) async fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.endpoints()).await.unwrap()
}

/// A client that knows these proxies.
pub(crate) async fn client_through(proxies: &[Proxy]) -> Client {
    let addresses = proxies.iter().map(Proxy::address);
    Client::connect(addresses).await.unwrap()
}

pub(crate) async fn open(client: &Client, ttl: Duration) -> Session {
    let identity = "tested".into();
    let options = SessionOptions { ttl, identity };
    client.open_session(options).await.unwrap()
}

/// Waits until a lease was renewed by a request that was sent after this moment.
pub(crate) async fn renewed(client: &Client, lease: &HeldLease, ttl: Duration) {
    let from: Moment = client.now();
    eventually("a renewal", || lease.valid_until() > from + ttl * 96 / 100).await;
}

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, waiting).await;
}

pub(crate) const WORKER: &str = env!("CARGO_BIN_EXE_client-worker");

/// A process of `src/bin/client-worker.rs`, and what it prints.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    lines: watch::Receiver<Vec<String>>,
}

/// One look of a worker at its lease that said yes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) token: u64,
    /// When it began to look.
    pub(crate) at: Moment,
    /// What its wall clock showed, in seconds since the Unix epoch.
    pub(crate) wall: i64,
}

impl Worker {
    /// Starts one, in the network of the calling thread.
    pub(crate) fn start(endpoints: &[String], args: &[&str], env: &[(&str, &Path)]) -> Self {
        let mut child = Command::new(WORKER)
            .args(args)
            .env("RINGFENCE_ENDPOINTS", endpoints.join(","))
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (tell, lines) = watch::channel(Vec::new());
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        tokio::spawn(async move {
            let mut output = BufReader::new(output).lines();
            while let Ok(Some(line)) = output.next_line().await {
                tell.send_modify(|lines: &mut Vec<String>| lines.push(line));
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits until it stands still.
    pub(crate) async fn stopped(&self) {
        let stat = format!("/proc/{}/stat", self.child.id().unwrap());
        eventually("the process stops itself", || {
            let read = std::fs::read_to_string(&stat).unwrap_or_default();
            // Behind the program's name in brackets, which may have spaces, stands the state.
            read.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        })
        .await;
    }

    /// Tells it something on its standard input.
    pub(crate) async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// What follows `start` in the first line that begins so.
    pub(crate) async fn told(&self, start: &str) -> String {
        let mut lines = self.lines.clone();
        let begins = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with(start));
        let waiting = tokio::time::timeout(LONG, lines.wait_for(begins)).await;
        assert!(matches!(waiting, Ok(Ok(_))), "no {start:?}: {}", self.end());
        let lines = self.lines.borrow();
        let told = lines.iter().find_map(|line| line.strip_prefix(start));
        told.unwrap().to_owned()
    }

    /// The line about the write of this value, once there is one.
    pub(crate) async fn outcome_of(&self, value: &str) -> String {
        let mut lines = self.lines.clone();
        let is = |line: &&String| {
            let told = line.starts_with("wrote") || line.starts_with("refused");
            told && line.rsplit(' ').next() == Some(value)
        };
        let found = lines.wait_for(|lines| lines.iter().any(|line| is(&line)));
        let found = within("the outcome of a write", found).await.unwrap();
        found.iter().find(is).unwrap().clone()
    }

    /// Whether any line begins so.
    pub(crate) fn has_told(&self, start: &str) -> bool {
        let lines = self.lines.borrow();
        lines.iter().any(|line| line.starts_with(start))
    }

    /// The numbers behind `start` in all lines that begin so.
    pub(crate) fn numbers(&self, start: &str) -> Vec<u64> {
        let lines = self.lines.borrow();
        let told = lines.iter().filter_map(|line| line.strip_prefix(start));
        let words = told.flat_map(|line| line.split_whitespace());
        words.map(|word| word.parse().unwrap()).collect()
    }

    /// All the work that it reported.
    pub(crate) fn work(&self) -> Vec<Work> {
        let lines = self.lines.borrow();
        let parsed = lines.iter().filter_map(|line| {
            let mut words = line.strip_prefix("work ")?.split(' ');
            let token = words.next()?.parse().ok()?;
            let at = Duration::from_nanos(words.next()?.parse().ok()?);
            let wall = words.next()?.parse().ok()?;
            let at = Moment::from_boot(at);
            Some(Work { token, at, wall })
        });
        parsed.collect()
    }

    /// Waits for work that began after that moment, and tells of the newest.
    pub(crate) async fn work_after(&self, moment: Moment) -> Work {
        let newest = || self.work().last().copied().filter(|work| work.at > moment);
        let waiting = async {
            loop {
                if let Some(work) = newest() {
                    return work;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(LONG, waiting).await {
            Ok(work) => work,
            Err(_) => panic!("no work: {}", self.end()),
        }
    }

    /// Its last lines.
    fn end(&self) -> String {
        let lines = self.lines.borrow();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}
