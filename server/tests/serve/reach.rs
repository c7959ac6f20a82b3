//! Nodes that other machines reach, in a cluster whose mode was never set: `--access` of one node is
//! no mode of the cluster, and until there is one no stranger may do anything, least of all give
//! itself rights.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::{self, Reason};
use ringfence_testkit::certificates::Authority;
use ringfence_testkit::ports::Port;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::api::{Api, open_request, refusal};
use crate::process::{GLANCE, PATIENCE, Ports, Process};
use crate::stream::Wire;

const EVERYWHERE: [&str; 3] = ["0.0.0.0"; 3];

/// n1, which founded the cluster on loopback without a word about rights, and n2.
struct Pair {
    first: Process,
    dir: TempDir,
    members: String,
    ports: Ports,
}

impl Pair {
    /// Starts n1, and n2 at these addresses with these flags.
    async fn start(hosts: [&str; 3], flags: &[&str]) -> (Self, Process) {
        let (own, ports) = (Ports::free(), Ports::free());
        let (n1, n2) = (own.peer, ports.peer);
        let members = format!("--initial-cluster=n1=127.0.0.1:{n1},n2=127.0.0.1:{n2}");
        let dir = TempDir::new().unwrap();
        let founder = ["--name=n1", &members, "--token-floor=0"];
        let first = Process::start(&dir.path().join("n1"), own, &founder);
        let pair = Self {
            first,
            dir,
            members,
            ports,
        };
        let second = pair.second(hosts, flags);
        let first = pair.first.ready().await;
        (Self { first, ..pair }, second)
    }

    /// Starts n2, perhaps again.
    fn second(&self, hosts: [&str; 3], flags: &[&str]) -> Process {
        let all = ["--name=n2", &self.members, "--token-floor=0"];
        let all = [&all, flags].concat();
        let on = [hosts[0], "127.0.0.1", hosts[2]];
        Process::start_on(on, &self.dir.path().join("n2"), self.ports, &all)
    }

    /// An operator's command over the admin socket of n2.
    fn operate(&self, args: &[&str]) -> Output {
        let socket = self.dir.path().join("n2/admin.sock");
        operate(&socket, args)
    }

    fn set_mode(&self, mode: &str) {
        let done = self.operate(&["access", "mode", mode]);
        assert!(done.status.success(), "{done:?}");
    }
}

fn operate(socket: &Path, args: &[&str]) -> Output {
    let endpoint = format!("unix:{}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.env_clear().stdin(Stdio::null());
    let command = command.args(["--timeout=10s", "--endpoints", &endpoint]);
    command.args(args).output().unwrap()
}

/// What curl gets: the status and the body.
fn curl(url: &str, more: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "20", "-w", "\n%{http_code}"]);
    let output = command.args(more).arg(url).stdin(Stdio::null()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// The node has joined, and says this at /readyz.
async fn says(node: &Process, status: u16, words: &str) {
    let said = async {
        while !(node.http("/readyz")).is_some_and(|said| said.0 == status && said.1.contains(words))
        {
            sleep(GLANCE).await;
        }
    };
    let in_time = timeout(PATIENCE, said).await.is_ok();
    assert!(in_time, "{:?}\n{}", node.http("/readyz"), node.logged());
}

async fn logs(node: &Process, words: &str) {
    let logged = async {
        while !node.logged().contains(words) {
            sleep(GLANCE).await;
        }
    };
    let in_time = timeout(PATIENCE, logged).await.is_ok();
    assert!(in_time, "{}", node.logged());
}

const CLOSED: &str = "the cluster's mode is off";

/// A stranger, who knows all that can be known of the cluster, gives itself the right to change rights.
async fn seize(node: &Process, known: v1::GetAccessResponse) -> Result<(), tonic::Status> {
    let rule = v1::Rule {
        principals: "anonymous".to_owned(),
        verb: v1::Verb::Admin.into(),
        names: String::new(),
    };
    let change = v1::ChangeAccessRequest {
        cluster_id: known.cluster_id,
        based_on: known.access_index,
        changes: vec![v1::AccessChange {
            change: Some(v1::access_change::Change::AddRule(rule)),
        }],
    };
    access(node).await.change_access(change).await.map(drop)
}

async fn access(node: &Process) -> AccessClient<Channel> {
    let channel = Channel::from_shared(node.url()).unwrap();
    AccessClient::new(channel.connect().await.unwrap())
}

async fn rights(node: &Process) -> v1::GetAccessResponse {
    let mut access = access(node).await;
    let known = async {
        loop {
            // Between two starts of n2 there is no leader.
            match access.get_access(v1::GetAccessRequest {}).await {
                Ok(known) => return known.into_inner(),
                Err(refused) => assert_eq!(refusal(&refused).reason, Reason::Unavailable),
            }
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, known).await.expect("a leader")
}

#[track_caller]
fn not_done<T>(answer: Result<T, tonic::Status>) {
    let status = answer.err().expect("a stranger is not served");
    let refusal = refusal(&status);
    assert_eq!(refusal.reason, Reason::Unavailable, "{refusal:?}");
    assert!(refusal.is_certain() && refusal.retry_after.is_some());
    let next = ["admin.sock", "--allow-anonymous"].map(|next| refusal.message.contains(next));
    assert_eq!(next, [true; 2], "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_that_is_no_mode_of_the_cluster_lets_no_stranger_in() {
    // Until it starts again its own machine alone reaches it.
    let (pair, second) = Pair::start(["127.0.0.1"; 3], &[]).await;
    drop(second.ready().await);
    for mode in ["--access=enforced", "--access=permissive"] {
        let second = pair.second(EVERYWHERE, &[mode]);
        says(&second, 503, CLOSED).await;
        assert!(
            second
                .http("/readyz")
                .unwrap()
                .1
                .contains("--allow-anonymous")
        );

        let known = rights(&pair.first).await;
        not_done(seize(&second, known).await);
        let mut api = Api::of(&second).await;
        not_done(api.sessions.open(open_request("stranger")).await);
        not_done(api.get("bank").await);
        not_done(Wire::open(&mut api).await);
        let asked = api.cluster.status(v1::StatusRequest {}).await;
        not_done(asked);
        let (status, body) = curl(&format!("{}/v1/leases", second.url()), &[]);
        assert_eq!(status, "503", "{body}");
        assert!(
            body.contains("not_done") && body.contains("UNAVAILABLE"),
            "{body}"
        );
        let console = ["-H", "ringfence-console: 1"];
        let page = format!("http://127.0.0.1:{}/console/v1/leases", second.ports.http);
        let (status, body) = curl(&page, &console);
        assert_eq!(status, "503", "{body}");

        // What shows no name is for all callers, as ever.
        let channel = Channel::from_shared(second.url()).unwrap();
        let mut health = HealthClient::new(channel.connect().await.unwrap());
        let asked = health.check(HealthCheckRequest::default()).await;
        assert_eq!(
            asked.unwrap().into_inner().status(),
            ServingStatus::NotServing
        );
        assert_eq!(second.http("/livez").unwrap().0, 200);
        let metrics = second.http("/metrics").unwrap().1;
        assert!(metrics.contains("\nringfence_ready 0\n"), "{metrics}");
        // And its operator comes in.
        let listed = pair.operate(&["lease", "list"]);
        assert!(listed.status.success(), "{listed:?}");
        logs(&second, CLOSED).await;
        assert!(second.logged().contains("WARN"));
    }
    let _majority = pair.second(["127.0.0.1"; 3], &[]);
    let known = rights(&pair.first).await;
    assert_eq!(known.rules, []);
    seize(&pair.first, known)
        .await
        .expect("its own machine does as it likes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_was_set_opens_a_node_for_as_long_as_it_runs() {
    let (pair, second) = Pair::start(EVERYWHERE, &["--access=enforced"]).await;
    says(&second, 503, CLOSED).await;
    // Nothing asks n2 in between.
    pair.set_mode("permissive");
    pair.set_mode("off");
    says(&second, 200, "ok").await;
    assert_eq!(rights(&second).await.mode(), v1::AccessMode::Off);
    Api::of(&second).await.open("holder").await;
    drop(second);

    // That was before it started again.
    let second = pair.second(EVERYWHERE, &["--access=enforced"]);
    says(&second, 503, CLOSED).await;
    not_done(Api::of(&second).await.get("bank").await);
    pair.set_mode("enforced");
    says(&second, 200, "ok").await;
    let refused = Api::of(&second).await.get("bank").await.unwrap_err();
    assert_eq!(refusal(&refused).reason, Reason::PermissionDenied);
    drop(second);

    // And a node that finds rights in force is closed at no time.
    let second = pair
        .second(EVERYWHERE, &["--access=enforced"])
        .ready()
        .await;
    pair.set_mode("off");
    says(&second, 200, "ok").await;
    Api::of(&second).await.open("holder").await;
}

/// It applies the entries that set the mode and took it back, and these are older than itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_was_taken_back_before_a_node_joined_does_not_open_it() {
    let (pair, second) = Pair::start(["127.0.0.1"; 3], &[]).await;
    let _second = second.ready().await;
    pair.set_mode("permissive");
    pair.set_mode("off");
    let join = format!("--join=127.0.0.1:{}", pair.ports.peer);
    let flags = ["--name=n3", &join, "--access=enforced"];
    let (data, on) = (
        pair.dir.path().join("n3"),
        ["0.0.0.0", "127.0.0.1", "0.0.0.0"],
    );
    let third = Process::start_on(on, &data, Ports::free(), &flags);
    says(&third, 503, CLOSED).await;
    not_done(seize(&third, rights(&pair.first).await).await);
    pair.set_mode("permissive");
    says(&third, 200, "ok").await;
}

/// Its disk says that rights bind; the cluster may have taken them back since, and cannot be asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_majority_says_what_it_knows_and_serves_nothing_else() {
    let (pair, second) = Pair::start(["127.0.0.1"; 3], &[]).await;
    let second = second.ready().await;
    pair.set_mode("permissive");
    // With the entries behind it the disk knows that the mode is committed.
    for holder in ["one", "two"] {
        Api::of(&second).await.open(holder).await;
    }
    drop(second);
    let Pair {
        first,
        dir,
        members,
        ports,
    } = pair;
    drop(first);

    let flags = [
        "--name=n2",
        &members,
        "--token-floor=0",
        "--access=enforced",
    ];
    let on = ["0.0.0.0", "127.0.0.1", "0.0.0.0"];
    let alone = Process::start_on(on, &dir.path().join("n2"), ports, &flags);
    says(&alone, 503, "").await;
    let mut api = Api::of(&alone).await;
    let answered = async {
        loop {
            // Its log is read first.
            match api.cluster.status(v1::StatusRequest {}).await {
                Ok(status) => return status.into_inner(),
                Err(refused) => assert_eq!(refusal(&refused).reason, Reason::Unavailable),
            }
            sleep(GLANCE).await;
        }
    };
    let status = timeout(PATIENCE, answered).await.expect("an answer");
    // It may still take the one that is gone for the leader.
    assert_eq!((status.name.as_str(), status.leader_id < 2), ("n2", true));
    let members = api.cluster.list_members(v1::ListMembersRequest {}).await;
    assert_eq!(members.unwrap().into_inner().members.len(), 2);

    let mut closed = vec![
        api.get("bank").await.map(drop),
        Wire::open(&mut api).await.map(drop),
    ];
    let promoted = v1::PromoteMemberRequest::default();
    closed.push(api.cluster.promote_member(promoted).await.map(drop));
    let who = access(&alone).await.who_am_i(v1::WhoAmIRequest {}).await;
    closed.push(who.map(drop));
    for answer in closed {
        let refusal = refusal(&answer.expect_err("it does not know the mode"));
        assert_eq!(refusal.reason, Reason::Unavailable, "{refusal:?}");
        let next = ["has not caught up", "cluster status"];
        let next = next.map(|next| refusal.message.contains(next));
        assert_eq!(next, [true; 2], "{refusal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_that_anonymous_callers_may_is_asked_for_no_mode() {
    let flags = ["--access=permissive", "--allow-anonymous"];
    let (_pair, second) = Pair::start(EVERYWHERE, &flags).await;
    let second = second.ready().await;
    Api::of(&second).await.open("holder").await;
}

/// Each port is judged by its own address.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_on_loopback_is_open_beside_closed_ones() {
    let dir = TempDir::new().unwrap();
    let servers = Authority::new("servers");
    let own = servers.sign(&["127.0.0.1"]).save(dir.path(), "node");
    let servers = servers.save(dir.path(), "servers");
    let electors = Port::any();
    let flags = [
        "--access=permissive".to_owned(),
        format!("--cert-file={}", own.certificate.display()),
        format!("--key-file={}", own.key.display()),
        format!("--listen-lease-api=0.0.0.0:{}", electors.number()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let hosts = ["127.0.0.1", "127.0.0.1", "0.0.0.0"];
    let (pair, second) = Pair::start(hosts, &flags).await;
    says(&second, 503, CLOSED).await;

    let console = "ringfence-console: 1";
    let ports = || {
        let at = |scheme: &str, port: u16, path: &str| format!("{scheme}://127.0.0.1:{port}{path}");
        let leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
        let urls = [
            at("https", second.ports.client, "/v1/leases"),
            at("https", electors.number(), leases),
            at("http", second.ports.http, "/console/v1/leases"),
            at("http", second.ports.http, "/console/"),
        ];
        let trust = ["--cacert", servers.to_str().unwrap(), "-H", console];
        urls.map(|url| curl(&url, &trust).0)
    };
    assert_eq!(ports(), ["200", "503", "503", "200"]);
    pair.set_mode("permissive");
    says(&second, 200, "ok").await;
    assert_eq!(ports(), ["200"; 4]);
}
