//! Nodes that know each other by IPv6 addresses, as in a cluster without IPv4.

use ringfence_proto::v1::check_response::Verdict;
use tempfile::TempDir;

use crate::api::Api;
use crate::process::{Ports, Process};

#[tokio::test]
async fn three_nodes_on_ipv6_form_a_cluster_that_both_families_reach() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("\nNOT TESTED: this machine has no IPv6 loopback address\n");
        return;
    }
    let dir = TempDir::new().unwrap();
    let ports = [0; 3].map(|_| Ports::free());
    let listed = |peer: u16| format!("[::1]:{peer}");
    let members: Vec<String> = (1..)
        .zip(&ports)
        .map(|(n, ports)| format!("n{n}={}", listed(ports.peer)))
        .collect();
    let members = format!("--initial-cluster={}", members.join(","));
    let mut nodes = Vec::new();
    for (n, ports) in (1..).zip(ports) {
        let name = format!("n{n}");
        // One listens as it does unless set otherwise, on everything; the others on IPv6 alone but
        // for the port that this test asks for their state.
        let host = if n == 1 { "[::]" } else { "[::1]" };
        let hosts = [host, host, "[::]"];
        let flags = [
            "--name",
            &name,
            &members,
            "--token-floor=0",
            "--allow-anonymous",
        ];
        let dir = dir.path().join(&name);
        nodes.push(Process::start_on(hosts, &dir, ports, &flags));
    }
    let mut ready = Vec::new();
    for node in nodes {
        ready.push(node.ready().await);
    }

    let over = |host: &str, node: &Process| format!("http://{host}:{}", node.ports.client);
    let mut first = Api::at(over("127.0.0.1", &ready[0])).await;
    let mut same = Api::at(over("[::1]", &ready[0])).await;
    let mut other = Api::at(over("[::1]", &ready[2])).await;
    let alice = first.open("alice").await;
    let granted = same.acquire(&alice, 1, "lease/1").await.unwrap();
    let told = other.check("lease/1", granted.token).await;
    assert_eq!(told.verdict(), Verdict::Current);
    // The address advertised to clients has brackets, too.
    let leader = other.status().await.leader_client_address;
    assert!(leader.starts_with("[::1]:"), "{leader}");
}
