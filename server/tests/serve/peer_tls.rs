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

/// A file with a secret of 32 bytes from this one on.
fn secret(dir: &TempDir, byte: u8) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.path().join(format!("{byte}.secret"));
    let digits: Vec<String> = (byte..byte + 32).map(|b| format!("{b:02x}")).collect();
    std::fs::write(&path, digits.concat()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    path.display().to_string()
}

/// A cluster of three that has a secret, and whose rights bind.
async fn three_with(dir: &TempDir, secret: &str, more: &[&str]) -> Vec<Process> {
    let ports = [0; 3].map(|_| Ports::free());
    let members = (1..).zip(&ports);
    let members = members.map(|(n, ports)| format!("n{n}=127.0.0.1:{}", ports.peer));
    let members = members.collect::<Vec<_>>().join(",");
    let start_one = |(n, ports): (usize, Ports)| {
        let mut flags = vec![
            format!("--name=n{n}"),
            format!("--cluster-secret-file={secret}"),
            format!("--initial-cluster={members}"),
            "--token-floor=0".to_owned(),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        start(dir, &format!("n{n}"), ports, &flags)
    };
    let nodes: Vec<Process> = (1..).zip(ports).map(start_one).collect();
    let mut ready = Vec::new();
    for node in nodes {
        ready.push(node.ready().await);
    }
    ready
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_a_secret_refuses_who_has_it_not_and_goes_on() {
    let dir = TempDir::new().unwrap();
    let ours = secret(&dir, 1);
    let ready = three_with(&dir, &ours, &[]).await;
    let mut api = Api::of(&ready[0]).await;
    let alice = api.open("alice").await;
    let held = api.acquire(&alice, 1, "held").await.unwrap();
    let leader = api.status().await.leader_id;

    let join = format!("--join=127.0.0.1:{}", ready[0].ports.peer);
    let stranger = |name: &str, more: &[String]| {
        let mut flags = vec![format!("--name={name}"), join.clone()];
        flags.extend_from_slice(more);
        start(&dir, name, Ports::free(), &flags)
    };
    // Another secret, none, and a certificate of another CA with the name of nodes.
    let other = [format!("--cluster-secret-file={}", secret(&dir, 101))];
    let other = stranger("n4", &other);
    logs(&other, "signed by none of the CAs that were named").await;
    let _plain = stranger("n5", &[]);
    logs(&ready[0], "it came without TLS").await;
    let clients = Authority::new("clients");
    let client = flags(
        &dir,
        "n6",
        &clients.sign(&["node.ringfence.internal"]),
        &clients,
    );
    let client = stranger("n6", &client[1..]);
    logs(&client, "signed by none of the CAs that were named").await;
    // Half a handshake, garbage and silence, over and over.
    let peer = ready[0].ports.peer;
    let floods = (0..200_u8).map(|n| async move {
        use tokio::io::AsyncWriteExt;
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", peer)).await?;
        let words: &[u8] = match n % 3 {
            0 => &[22, 3, 1, 2, 0, 1],
            1 => &[255; 64],
            _ => &[],
        };
        stream.write_all(words).await?;
        std::io::Result::Ok(stream)
    });
    let floods = futures_util::future::join_all(floods).await;

    for number in 2..50 {
        let grant = api.acquire(&alice, number, &format!("more/{number}")).await;
        assert_eq!(grant.unwrap().token, number);
    }
    assert_eq!(
        api.get("held").await.unwrap().holder.unwrap().token,
        held.token
    );
    assert_eq!(api.status().await.leader_id, leader);
    let members = ringfence_proto::v1::ListMembersRequest {};
    let members = api.cluster.list_members(members).await.unwrap();
    assert_eq!(members.into_inner().members.len(), 3);
    drop(floods);
    // A line for each refusal would be hundreds.
    let log = ready[0].logged();
    let lines = log.lines().filter(|line| line.contains("rejected")).count();
    assert!(lines < 50, "{lines} lines of refusals:\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_bind_on_all_interfaces_with_a_secret_alone() {
    let dir = TempDir::new().unwrap();
    let ours = secret(&dir, 1);
    let ports = Ports::free();
    let flags = [
        "--name=n1".to_owned(),
        format!("--cluster-secret-file={ours}"),
        format!("--initial-cluster=n1=127.0.0.1:{}", ports.peer),
        "--access=enforced".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let on = ["0.0.0.0", "0.0.0.0", "127.0.0.1"];
    let node = Process::start_on(on, &dir.path().join("n1"), ports, &flags);
    let node = node.ready().await;
    let mut api = Api::of(&node).await;
    let refused = api.leases.acquire(crate::api::acquire_request(
        &ringfence_proto::v1::SessionHandle::default(),
        1,
        "a",
    ));
    assert!(refused.await.is_err());
    let log = node.logged();
    assert!(!log.contains("--listen-peer 0.0.0.0"), "{log}");
}
