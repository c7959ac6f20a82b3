//! A node that may have few files open.

use std::net::TcpStream;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::api::Api;
use crate::process::{PATIENCE, Ports, Process};

/// As many files as the node may have open, and as many clients as that leaves room for.
const FILES: u64 = 256;
/// More sockets than files at each port that clients and scrapers reach.
const SOCKETS: usize = 400;

/// Sockets that are connected and say nothing.
fn silent(port: u16) -> Vec<TcpStream> {
    (0..SOCKETS)
        .filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect()
}

/// Begins to speak HTTP/2 as another node does, and waits for the first frame: its settings.
async fn other_node(port: u16) -> [u8; 9] {
    let speak = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(settings).await.unwrap();
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        head
    };
    timeout(PATIENCE, speak).await.expect("a peer is answered")
}

#[tokio::test]
async fn sockets_without_end_leave_a_reserve_of_files_for_peers_and_probes() {
    let dir = TempDir::new().unwrap();
    let ports = Ports::free();
    let flags = ["--token-floor=0", "--ttl-min=100ms"];
    let node = Process::start_limited(FILES, &dir.path().join("n1"), ports, &flags)
        .ready()
        .await;
    let logged = node.logged();
    assert!(logged.contains("fewer connections of clients"), "{logged}");

    let _clients = silent(ports.client);
    let _scrapers = silent(ports.http);

    for _ in 0..3 {
        for path in ["/livez", "/readyz"] {
            let (status, said) = node.http(path).expect("a probe is answered");
            assert_eq!(status, 200, "{path}: {said}");
        }
        let head = other_node(ports.peer).await;
        assert_eq!(head[3], 4, "the settings of HTTP/2: {head:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The log still gets its files, and a client that speaks a place.
    let mut api = Api::of(&node).await;
    let session = api.open("newcomer").await;
    api.acquire(&session, 1, "db").await.unwrap();
}
