//! Members that come and go while clients work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringfence_client::{Client, SessionOptions, Verdict};
use ringfence_proto::v1::{self, Reason};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Status;

use crate::api::{Api, refusal};
use crate::cluster::three;
use crate::process::{PATIENCE, Ports, Process};

/// How often what cannot be awaited is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A cluster that members join and leave, the first three called n1 to n3.
struct Changing {
    nodes: Vec<Process>,
    dir: TempDir,
}

impl Changing {
    async fn start() -> Self {
        let (nodes, dir) = three().await;
        Self { nodes, dir }
    }

    /// A node that asks the first three to let it in, ready as a learner.
    async fn join(&mut self, name: &str) -> u64 {
        self.join_at(Ports::free(), name, &[]).await
    }

    /// The same at these ports and with more flags.
    async fn join_at(&mut self, ports: Ports, name: &str, more: &[&str]) -> u64 {
        let peers = self.nodes.iter().map(|node| node.ports.peer);
        let peers: Vec<_> = peers.map(|port| format!("127.0.0.1:{port}")).collect();
        let join = format!("--join={}", peers.join(","));
        let dir = self.dir.path().join(name);
        let flags = [&["--name", name, &join], more].concat();
        let node = Process::start(&dir, ports, &flags);
        let node = node.ready().await;
        let id = Api::of(&node).await.status().await.node_id;
        self.nodes.push(node);
        id
    }

    async fn api(&self, at: usize) -> Api {
        Api::of(&self.nodes[at]).await
    }
}

impl Api {
    pub(crate) async fn members(&mut self) -> Vec<v1::Member> {
        let request = v1::ListMembersRequest {};
        let answer = self.cluster.list_members(request).await.unwrap();
        answer.into_inner().members
    }

    async fn promote(&mut self, node_id: u64) -> Result<(), Status> {
        let request = v1::PromoteMemberRequest {
            node_id,
            replaces: 0,
            force: false,
        };
        self.cluster.promote_member(request).await.map(|_| ())
    }

    async fn remove(&mut self, node_id: u64) -> Result<(), Status> {
        let request = v1::RemoveMemberRequest {
            node_id,
            force: false,
        };
        self.cluster.remove_member(request).await.map(|_| ())
    }

    async fn lead(&mut self, node_id: u64) -> Result<u64, Status> {
        let request = v1::TransferLeaderRequest { node_id };
        let answer = self.cluster.transfer_leader(request).await?;
        Ok(answer.into_inner().leader_id)
    }
}

/// Clients that acquire, look and release until they are asked to stop, and one that only holds.
struct Work {
    stop: Arc<AtomicBool>,
    grants: Arc<AtomicU64>,
    workers: Vec<JoinHandle<()>>,
    holder: JoinHandle<()>,
}

impl Work {
    async fn begin(endpoints: Vec<String>) -> Self {
        let (stop, grants) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut workers = Vec::new();
        for number in 0..4 {
            let client = Client::connect(endpoints.clone()).await.unwrap();
            let (stop, grants) = (stop.clone(), Arc::clone(&grants));
            workers.push(tokio::spawn(work(client, number, stop, grants)));
        }
        let client = Client::connect(endpoints).await.unwrap();
        let held = Arc::clone(&stop);
        let holder = tokio::spawn(async move {
            let session = client.open_session(SessionOptions::default()).await;
            let lease = session.unwrap().acquire("held").send().await.unwrap();
            while !held.load(Ordering::Relaxed) {
                assert_eq!(lease.loss(), None);
                tokio::time::sleep(GLANCE).await;
            }
            lease.release().await.unwrap();
        });
        Self {
            stop,
            grants,
            workers,
            holder,
        }
    }

    /// Waits until so many more leases were granted: the cluster serves.
    async fn goes_on(&self) {
        let until = self.grants.load(Ordering::Relaxed) + 40;
        let served = async {
            while self.grants.load(Ordering::Relaxed) < until {
                assert!(self.workers.iter().all(|worker| !worker.is_finished()));
                tokio::time::sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, served).await.expect("leases are granted");
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            timeout(PATIENCE, worker).await.unwrap().unwrap();
        }
        timeout(PATIENCE, self.holder).await.unwrap().unwrap();
        self.grants.load(Ordering::Relaxed)
    }
}

/// Two workers share a lease name. Each sees tokens rise, and its grant in force until its release.
async fn work(client: Client, number: usize, stop: Arc<AtomicBool>, grants: Arc<AtomicU64>) {
    let session = client.open_session(SessionOptions::default()).await;
    let (session, name) = (session.unwrap(), format!("work/{}", number / 2));
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let acquire = session.acquire(&name).wait(PATIENCE);
        let lease = acquire.send().await.unwrap();
        assert!(Some(lease.token()) > last, "{name}: a token came again");
        last = Some(lease.token());
        let checked = client.check(lease.name(), lease.token()).await.unwrap();
        assert_eq!(checked, Verdict::Current);
        lease.release().await.unwrap();
        grants.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_under_load_and_no_grant_is_lost() {
    let mut cluster = Changing::start().await;
    let endpoint = |node: &Process| format!("127.0.0.1:{}", node.ports.client);
    let work = Work::begin(cluster.nodes.iter().map(endpoint).collect()).await;
    work.goes_on().await;

    // From three to five, each first without a vote.
    let mut joined = Vec::new();
    for name in ["n4", "n5"] {
        let id = cluster.join(name).await;
        let mut api = cluster.api(0).await;
        let members = api.members().await;
        let learner = members.iter().find(|member| member.node_id == id).unwrap();
        assert_eq!((learner.voter, learner.name.as_str()), (false, name));
        assert!(id > 3, "{id} is the id of a first member");
        let refused = api.lead(id).await.unwrap_err();
        assert_eq!(refusal(&refused).reason, Reason::Membership, "{refused:?}");
        api.promote(id).await.unwrap();
        // Promoting it again changes nothing.
        api.promote(id).await.unwrap();
        work.goes_on().await;
        joined.push(id);
    }
    let mut fourth = cluster.api(3).await;
    assert_eq!(fourth.members().await.iter().filter(|m| m.voter).count(), 5);

    // It leads, so it votes; and it hears of it from a node that does not lead.
    let leader = cluster.api(1).await.lead(joined[0]).await.unwrap();
    assert_eq!(leader, joined[0]);
    let leads = async {
        while fourth.status().await.role != "leader" {
            tokio::time::sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, leads).await.expect("n4 leads");
    work.goes_on().await;

    // From five to three: a follower goes, then the leader of before.
    for at in [0, 1] {
        fourth.remove(at as u64 + 1).await.unwrap();
        let gone = &mut cluster.nodes[at];
        let status = gone.ended_within(PATIENCE).await;
        let status = status.unwrap_or_else(|| panic!("it goes on: {}", gone.logged()));
        assert_eq!(status.code(), Some(1), "{}", gone.logged());
        assert!(gone.logged().contains("was removed"), "{}", gone.logged());
        work.goes_on().await;
    }
    let again = fourth.remove(1).await.unwrap_err();
    assert_eq!(refusal(&again).reason, Reason::Membership);
    let mut names = fourth.members().await;
    names.retain(|member| member.voter);
    let names: Vec<_> = names.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["n3", "n4", "n5"]);

    // The leader itself goes, and with two votes left one of them leads.
    fourth.remove(joined[0]).await.unwrap();
    work.goes_on().await;
    let status = cluster.nodes[3].ended_within(PATIENCE).await;
    let status = status.unwrap_or_else(|| panic!("it goes on: {}", cluster.nodes[3].logged()));
    assert_eq!(status.code(), Some(1), "{}", cluster.nodes[3].logged());
    work.goes_on().await;
    assert!(work.end().await > 200);
}

/// Its farewell may have been heard after it had stopped waiting for the answer: on its volume a
/// StatefulSet that is scaled up again starts a node.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_by_its_stateful_set_clears_its_directory_when_it_learns_of_it() {
    let mut cluster = Changing::start().await;
    let kubeconfig = cluster.dir.path().join("kubeconfig");
    let nobody = serde_json::json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&kubeconfig, nobody.to_string()).unwrap();
    let leaves = ["--kube-leave", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let (name, ports) = ("ringfence-3", Ports::free());
    let former = cluster.join_at(ports, name, &leaves).await;
    // A stop without an answer to whether it is to stay: it keeps its seat, and its directory.
    let mut node = cluster.nodes.pop().unwrap();
    node.signal("TERM");
    let status = node.ended_within(PATIENCE).await.expect("it ends in time");
    assert!(status.success(), "{}", node.logged());
    assert!(
        node.logged().contains("keeps its seat"),
        "{}",
        node.logged()
    );
    assert_eq!(cluster.join_at(ports, name, &leaves).await, former);

    let mut node = cluster.nodes.pop().unwrap();
    cluster.api(0).await.remove(former).await.unwrap();
    let status = node.ended_within(PATIENCE).await.expect("it ends");
    assert_eq!(status.code(), Some(1), "{}", node.logged());
    assert!(!cluster.dir.path().join(name).exists());
    assert_ne!(cluster.join_at(ports, name, &leaves).await, former);
}
