//! What a service manager learns of a node, by systemd's protocol.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

use crate::process::{PATIENCE, Ports, Process};

/// The next message; none comes if the node ended before it.
fn next(manager: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let length = manager
        .recv(&mut message)
        .expect("the node notifies in time");
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_when_it_serves_and_when_it_stops() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let ports = Ports::free();
    let dir = folder.path().join("n1");
    // It waits for a second member, which never comes: it serves probes all the same.
    let first = format!(
        "--initial-cluster=n1=127.0.0.1:{},n2=127.0.0.1:1",
        ports.peer
    );
    let mut node = Process::start_with(("NOTIFY_SOCKET", &path), &dir, ports, &[&first]);
    assert_eq!(next(&manager), "READY=1\n", "{}", node.logged());
    assert_eq!(node.http("/livez").map(|(status, _)| status), Some(200));
    assert_eq!(node.http("/readyz").map(|(status, _)| status), Some(503));

    node.signal("TERM");
    assert_eq!(next(&manager), "STOPPING=1\n");
    let ended = node.ended_within(PATIENCE).await.expect("it ends");
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_gone_stops_no_node() {
    let folder = TempDir::new().unwrap();
    let gone = folder.path().join("gone");
    let dir = folder.path().join("n1");
    let node = Process::start_with(("NOTIFY_SOCKET", &gone), &dir, Ports::free(), &[]);
    let node = node.ready().await;
    sleep(Duration::from_millis(100)).await;
    assert!(
        node.logged().contains("cannot be notified"),
        "{}",
        node.logged()
    );
}
