//! Sockets that write nothing, or garbage.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::measure::{PATIENCE, Stage};

/// Idle sockets at one port: more than the soft limit of open files that processes begin with.
const IDLE: usize = 1_200;

/// What `/livez` answers.
async fn livez(http: &str) -> String {
    let ask = async {
        let mut stream = TcpStream::connect(http).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    timeout(PATIENCE, ask).await.expect("a probe is answered")
}

/// Sockets that are connected and write nothing.
async fn idle(address: &str, count: usize) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.extend(
            timeout(PATIENCE, TcpStream::connect(address))
                .await
                .unwrap()
                .ok(),
        );
    }
    idle
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sockets_keep_no_probe_and_no_client_out() {
    raise_own_limit();
    let mut stage = Stage::set().await;
    let client = stage.cluster.endpoints()[stage.leader].clone();
    let http = stage.cluster.http(stage.leader);
    let _clients = idle(&client, IDLE).await;
    let _probes = idle(&http, 300).await;

    assert!(livez(&http).await.starts_with("HTTP/1.1 200"));
    let caller = stage.cluster.caller();
    caller
        .open("newcomer", Duration::from_secs(5))
        .await
        .unwrap();
    stage.holds_for(Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_cut_off_and_costs_nothing() {
    let mut stage = Stage::set().await;
    let ports = [
        stage.cluster.endpoints()[stage.leader].clone(),
        stage.cluster.http(stage.leader),
    ];
    let mut attack = JoinSet::new();
    for at in 0..100_usize {
        let address = ports[at % 2].clone();
        attack.spawn(async move {
            // As if it meant to speak HTTP/2, every other time.
            let preface: &[u8] = if at % 4 < 2 {
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            } else {
                b""
            };
            let garbage: Vec<u8> = (0..64 << 10).map(|_| rand::random()).collect();
            loop {
                let Ok(mut stream) = TcpStream::connect(&address).await else {
                    continue;
                };
                // The node may cut it off in the middle.
                let _cut = stream.write_all(preface).await.is_err()
                    || stream.write_all(&garbage).await.is_err();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    stage.holds_for(Duration::from_secs(5)).await;
    drop(attack);
    assert!(livez(&ports[1]).await.starts_with("HTTP/1.1 200"));
}

/// The attackers are in this process.
pub(crate) fn raise_own_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}
