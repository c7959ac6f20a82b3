//! Callers that prove nothing, and callers that have no right, as fast as they can.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_client::{Client, SessionOptions};
use ringfence_proto::Refusal;
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    ConfigureRequest, GetAccessRequest, GetRequest, ListRequest, OpenRequest, Reason,
    RevokeRequest, SettingsChange,
};
use ringfence_tests::{Cluster, Options, server};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::attackers::connect;
use crate::measure::{PATIENCE, WHOLE_MACHINE, memory};

/// How long each attack lasts.
const ATTACK: Duration = Duration::from_secs(6);
/// The TTL of the honest, whose keep-alives are sent three times as often.
const TTL: Duration = Duration::from_secs(6);
/// Connections to each node of each kind of attacker.
const CONNECTIONS: usize = 4;
/// Calls of each connection that are under way.
const UNDER_WAY: usize = 8;
/// What a node may take beside what it took before: buffers of connections, and what an allocator
/// keeps. The tables of callers are there from the start.
const MORE_MAX: u64 = 128 << 20;
/// What an attack has to come to, to be one.
const REFUSED_MIN: u64 = 1_000;

/// What became of the attackers' requests.
#[derive(Default)]
struct Refused {
    unproven: AtomicU64,
    denied: AtomicU64,
    limited: AtomicU64,
}

impl Refused {
    fn count<T>(&self, answer: Result<T, Status>) {
        let Err(status) = answer else {
            panic!("an attacker was served");
        };
        // A connection that a node closes, or a call that is given up, is no answer.
        let Some(refusal) = Refusal::from_status(&status) else {
            return;
        };
        let count = match refusal.reason {
            Reason::Unauthenticated => &self.unproven,
            Reason::PermissionDenied => &self.denied,
            Reason::Limit => &self.limited,
            Reason::Unavailable => return,
            _ => panic!("{refusal}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cluster that enforces rights, before any session is opened.
async fn enforced() -> Cluster {
    let flags = ["--heartbeat-ms", "250", "--election-ms", "2000..3000"];
    let flags = [&flags[..], &["--access", "enforced"]].concat();
    let cluster = Cluster::start(Options {
        flags: flags.into_iter().map(str::to_owned).collect(),
        probed: false,
        ..Options::alone()
    })
    .await;
    let everywhere = async {
        for at in 0..cluster.len() {
            while !local(&cluster, at, &["access", "mode"]).contains("enforced") {
                sleep(Duration::from_millis(100)).await;
            }
        }
    };
    timeout(PATIENCE, everywhere)
        .await
        .expect("rights bind in time");
    // What nodes count is read over HTTP, without a credential.
    local(
        &cluster,
        0,
        &[
            "access",
            "grant",
            "anonymous",
            "observe",
            "ringfence/metrics",
        ],
    );
    cluster
}

/// Runs a command by the admin socket of a node; what it prints.
pub(crate) fn local(cluster: &Cluster, at: usize, arguments: &[&str]) -> String {
    let socket = cluster.data_dir(at).join("admin.sock");
    let mut command = Command::new(server());
    command.arg(format!("--endpoints=unix:{}", socket.display()));
    let done = command.args(arguments).output().unwrap();
    String::from_utf8(done.stdout).unwrap()
}

/// The value of a counter of a node.
fn counter(cluster: &Cluster, at: usize, name: &str) -> u64 {
    let mut http = TcpStream::connect(cluster.http(at)).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut shown = String::new();
    http.read_to_string(&mut shown).unwrap();
    let prefix = format!("ringfence_{name}_total ");
    let value = shown.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap().trim().parse().unwrap()
}

/// Requests with a token that no issuer made.
async fn prove_nothing(channel: Channel, refused: Arc<Refused>) {
    let mut leases = LeasesClient::new(channel);
    for n in 0_u64.. {
        let mut request = Request::new(GetRequest {
            name: "hidden/lease".to_owned(),
            read: None,
        });
        let token = format!("Bearer e30.{n:043}.e30");
        let token = token.parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        refused.count(leases.get(request).await);
    }
}

/// Requests of a caller that no rule allows anything.
async fn have_no_right(channel: Channel, refused: Arc<Refused>) {
    let mut leases = LeasesClient::new(channel.clone());
    let mut sessions = SessionsClient::new(channel.clone());
    let mut access = AccessClient::new(channel.clone());
    let mut cluster = ClusterClient::new(channel);
    for n in 0_u64.. {
        let name = format!("hidden/{n}");
        match n % 6 {
            0 => refused.count(leases.get(GetRequest { name, read: None }).await),
            1 => refused.count(leases.list(ListRequest::default()).await),
            2 => {
                let revoke = RevokeRequest {
                    name,
                    token: 1,
                    ..RevokeRequest::default()
                };
                refused.count(leases.revoke(revoke).await);
            }
            3 => {
                let id = u128::from(n).to_be_bytes().to_vec();
                let open = OpenRequest {
                    id: id.clone().into(),
                    secret: id.into(),
                    identity: "mallory".to_owned(),
                    ..OpenRequest::default()
                };
                refused.count(sessions.open(open).await);
            }
            4 => refused.count(access.get_access(GetAccessRequest {}).await),
            _ => {
                let configure = ConfigureRequest {
                    change: Some(SettingsChange::default()),
                    ..ConfigureRequest::default()
                };
                refused.count(cluster.configure(configure).await);
            }
        }
    }
}

/// Lets both kinds of attackers loose on all nodes.
async fn attack(cluster: &Cluster, refused: &Arc<Refused>) -> JoinSet<()> {
    let mut attackers = JoinSet::new();
    for endpoint in cluster.endpoints() {
        for _ in 0..CONNECTIONS {
            let (one, other) = (connect(&endpoint).await, connect(&endpoint).await);
            for _ in 0..UNDER_WAY {
                attackers.spawn(prove_nothing(one.clone(), Arc::clone(refused)));
                attackers.spawn(have_no_right(other.clone(), Arc::clone(refused)));
            }
        }
    }
    attackers
}

/// Asserts that no attacker was served or has failed, and that there were many.
async fn end(mut attackers: JoinSet<()>, refused: &Refused) {
    assert!(attackers.try_join_next().is_none(), "an attacker has ended");
    attackers.shutdown().await;
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (unproven, denied) = (of(&refused.unproven), of(&refused.denied));
    let limited = of(&refused.limited);
    println!("{unproven} unproven, {denied} denied, {limited} not looked at");
    assert!(unproven > 0 && unproven + limited >= REFUSED_MIN);
    assert!(denied >= REFUSED_MIN, "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_11_failed_proofs_and_denied_requests_are_not_logged_and_take_no_memory() {
    let _alone = WHOLE_MACHINE.lock().await;
    let cluster = enforced().await;
    // With no session, nothing waits for time: the log stands still.
    let still = async {
        loop {
            let before = cluster.applied(0).await;
            sleep(Duration::from_secs(1)).await;
            if cluster.applied(0).await == before {
                return before;
            }
        }
    };
    let before = timeout(PATIENCE, still)
        .await
        .expect("a log that stands still");
    let took: Vec<u64> = (0..3).map(|at| memory(cluster.pid(at).unwrap())).collect();

    let refused = Arc::new(Refused::default());
    let attackers = attack(&cluster, &refused).await;
    sleep(ATTACK).await;
    for (at, took) in took.into_iter().enumerate() {
        let takes = memory(cluster.pid(at).unwrap());
        println!("node {at}: {} MiB, before {} MiB", takes >> 20, took >> 20);
        assert!(
            takes <= took + MORE_MAX,
            "node {at} has {} MiB",
            takes >> 20
        );
    }
    end(attackers, &refused).await;

    for at in 0..cluster.len() {
        assert_eq!(
            cluster.applied(at).await,
            before,
            "node {at} has logged something"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_11_an_honest_session_is_kept_alive_in_time_beside_those_that_are_refused() {
    let _alone = WHOLE_MACHINE.lock().await;
    let cluster = enforced().await;
    let token = local(&cluster, 0, &["access", "token", "create", "honest"]);
    let grant = ["access", "grant", "token:honest", "acquire", "honest/*"];
    local(&cluster, 0, &grant);
    let client = Client::builder()
        .endpoints(cluster.endpoints())
        .token(token.trim());
    let client = client.connect().await.unwrap();
    let options = SessionOptions {
        ttl: TTL,
        identity: "honest".to_owned(),
    };
    let session = client.open_session(options).await.unwrap();
    let held = session.acquire("honest/lease").send().await.unwrap();
    let (of_nodes, leader) = (0..cluster.len(), cluster.wait_for_leader(PATIENCE).await);
    // What the leader logs for time and for keep-alives, and all that it logs.
    let logged = async || {
        let ticks = counter(&cluster, leader, "ticks");
        let kept = counter(&cluster, leader, "keep_alive_entries");
        (cluster.applied(leader).await, ticks + kept)
    };

    let (index, expected) = logged().await;
    let refused = Arc::new(Refused::default());
    let attackers = attack(&cluster, &refused).await;
    let begun = now();
    let mut least = held.term().remaining();
    while begun.elapsed() < 2 * TTL {
        least = least.min(held.term().remaining());
        sleep(Duration::from_millis(50)).await;
    }
    end(attackers, &refused).await;
    let (now_index, now_expected) = logged().await;

    println!("the window was at least {least:?} long");
    assert!(held.term().is_valid() && session.is_live());
    assert!(least > Duration::ZERO, "a keep-alive was late");
    // Counters are read one after the other, and a tick may come between.
    let (logged, expected) = (now_index - index, now_expected - expected);
    assert!(
        logged <= expected + 4,
        "{logged} entries, {expected} of them the leader's own"
    );
    for at in of_nodes {
        assert!(memory(cluster.pid(at).unwrap()) < 1 << 30);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long an attack lasts"
)]
fn now() -> Instant {
    Instant::now()
}
