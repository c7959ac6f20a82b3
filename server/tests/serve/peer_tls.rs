//! TLS between nodes.

use ringfence_testkit::certificates::{Authority, Signed};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::api::Api;
use crate::process::{PATIENCE, Ports, Process};

/// The flags of a node with this certificate, which demands one of the authority's.
fn flags(dir: &TempDir, name: &str, signed: &Signed, trusted: &Authority) -> Vec<String> {
    let files = signed.save(dir.path(), name);
    let ca = trusted.save(dir.path(), &format!("{name}-ca"));
    vec![
        format!("--name={name}"),
        format!("--peer-cert-file={}", files.certificate.display()),
        format!("--peer-key-file={}", files.key.display()),
        format!("--peer-trusted-ca-file={}", ca.display()),
        "--peer-tls-name=127.0.0.1".to_owned(),
        "--token-floor=0".to_owned(),
    ]
}

fn start(dir: &TempDir, name: &str, ports: Ports, flags: &[String]) -> Process {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Process::start(&dir.path().join(name), ports, &flags)
}

async fn logs(node: &Process, words: &str) {
    let logged = async {
        while !node.logged().contains(words) {
            sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let logged = timeout(PATIENCE, logged).await;
    assert!(logged.is_ok(), "{words:?} in {}", node.logged());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_form_a_cluster_by_their_certificates_and_keep_strangers_out() {
    let dir = TempDir::new().unwrap();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let ports = [0; 3].map(|_| Ports::free());
    let members = (1..).zip(&ports);
    let members = members.map(|(n, ports)| format!("n{n}=127.0.0.1:{}", ports.peer));
    let members = format!(
        "--initial-cluster={}",
        members.collect::<Vec<_>>().join(",")
    );
    let mut nodes = Vec::new();
    for (n, ports) in (1..).zip(ports) {
        let name = format!("n{n}");
        let mut flags = flags(&dir, &name, &ours.sign(&["127.0.0.1"]), &ours);
        flags.push(members.clone());
        nodes.push(start(&dir, &name, ports, &flags));
    }
    let mut ready = Vec::new();
    for node in nodes {
        ready.push(node.ready().await);
    }
    // Through whichever node: two of three do not lead, and hand the call on.
    for (n, node) in (1..).zip(&ready) {
        let mut api = Api::of(node).await;
        let alice = api.open("alice").await;
        let grant = api.acquire(&alice, 1, &format!("lease/{n}")).await.unwrap();
        assert_eq!(grant.token, n);
    }

    let join = format!("--join=127.0.0.1:{}", ready[0].ports.peer);
    // It trusts the cluster; the cluster does not trust it.
    let mut unknown = flags(&dir, "n4", &theirs.sign(&["127.0.0.1"]), &ours);
    unknown.push(join.clone());
    let unknown = start(&dir, "n4", Ports::free(), &unknown);
    logs(
        &unknown,
        "does not trust the CA of this client's certificate",
    )
    .await;
    logs(&ready[0], "rejected").await;

    let plain = ["--name=n5".to_owned(), join.clone()];
    let _plain = start(&dir, "n5", Ports::free(), &plain);
    logs(&ready[0], "it came without TLS").await;

    // A certificate of the same authority, for a client.
    let mut client = flags(&dir, "n7", &ours.sign(&["client.example"]), &ours);
    client.push(join.clone());
    let client = start(&dir, "n7", Ports::free(), &client);
    logs(&client, "a port of peers demands one of their names").await;
    logs(&ready[0], "it is not a peer's: it has client.example").await;

    // It does not trust the cluster.
    let mut suspicious = flags(&dir, "n6", &ours.sign(&["127.0.0.1"]), &theirs);
    suspicious.push(join);
    let suspicious = start(&dir, "n6", Ports::free(), &suspicious);
    logs(&suspicious, "signed by none of the CAs that were named").await;
}
