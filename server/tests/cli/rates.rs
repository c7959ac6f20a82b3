//! What one principal, or one address, may ask of a node where rights bind.

use std::net::TcpStream;
use std::time::Duration;

use ringfence_client::{Client, SessionOptions};
use ringfence_proto::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{GetRequest, Reason};
use ringfence_services::FIGURES;
use std::io::{Read, Write};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::access::Node;
use crate::harness::await_that;

/// A cluster of one that enforces rights, and in which callers without a credential have some.
fn node(flags: &[&str]) -> Node {
    let node = Node::start(&[&["--access", "enforced"], flags].concat());
    await_that("rights bind", || {
        node.local(&["access", "mode"]).object()["mode"] == "enforced"
    });
    for right in [["acquire", "a/*"], ["observe", FIGURES]] {
        node.local(&[&["access", "grant", "anonymous"][..], &right].concat())
            .object();
    }
    node
}

/// A connection of its own.
async fn connect(node: &Node) -> LeasesClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", node.client)).unwrap();
    LeasesClient::new(endpoint.connect().await.unwrap())
}

fn get() -> GetRequest {
    GetRequest {
        name: "a/lease".to_owned(),
        read: None,
    }
}

/// The limit that a refusal names.
#[track_caller]
fn limit(status: &Status) -> String {
    let refusal = Refusal::from_status(status).unwrap_or_else(|| panic!("{status:?}"));
    assert_eq!(refusal.reason, Reason::Limit, "{refusal}");
    assert!(refusal.retry_after.is_some(), "{refusal}");
    refusal.metadata["limit"].clone()
}

/// What a counter shows of a limit.
fn refused(node: &Node, limit: &str) -> u64 {
    let mut http = TcpStream::connect(&node.http).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut shown = String::new();
    http.read_to_string(&mut shown).unwrap();
    let series = format!("ringfence_limited_total{{limit=\"{limit}\",enforced=\"true\"}} ");
    let value = shown.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_asks_too_much_is_refused_and_keeps_its_lease() {
    let node = node(&["--principal-requests-max", "50"]);
    let client = Client::builder().endpoints([node.client.clone()]);
    let client = client.connect().await.unwrap();
    let options = SessionOptions {
        ttl: Duration::from_secs(2),
        identity: "holder".to_owned(),
    };
    let session = client.open_session(options).await.unwrap();
    let held = session.acquire("a/lease").send().await.unwrap();

    let mut leases = connect(&node).await;
    let (mut answered, mut denied) = (0_u64, 0_u64);
    let flood = async {
        loop {
            match leases.get(get()).await {
                Ok(_) => answered += 1,
                Err(status) => {
                    assert_eq!(limit(&status), "requests_per_principal");
                    denied += 1;
                }
            }
        }
    };
    // Three times as long as the session would last without keep-alives.
    assert!(
        tokio::time::timeout(Duration::from_secs(6), flood)
            .await
            .is_err()
    );

    assert!(session.is_live(), "a keep-alive was refused");
    assert!(held.term().is_valid(), "the lease was lost");
    // A burst, and the rate; the client's own requests are among them.
    assert!(
        (50..=50 * 8).contains(&answered),
        "{answered} were answered"
    );
    assert!(denied > 0, "none was refused");
    assert!(refused(&node, "requests_per_principal") >= denied);
    // `local` has no limits: what was refused can be changed.
    for _ in 0..3 {
        node.local(&["access", "list"]).object();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_moves_too_many_bytes_is_refused_until_it_has_paid() {
    let node = node(&["--principal-bytes-max", "1048576"]);
    let mut leases = connect(&node).await;
    let large = GetRequest {
        name: "a".repeat(900 << 10),
        read: None,
    };
    let over = async {
        loop {
            // The name is refused, and its bytes have come.
            leases.get(large.clone()).await.unwrap_err();
            let small = leases.get(get()).await.unwrap_err();
            if Refusal::from_status(&small).unwrap().reason == Reason::Limit {
                return small;
            }
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(10), over).await;
    assert_eq!(limit(&status.unwrap()), "bytes_per_principal");
    assert!(refused(&node, "bytes_per_principal") > 0);
    let paid = async {
        while let Err(status) = leases.get(get()).await {
            match Refusal::from_status(&status).unwrap().reason {
                Reason::NotFound => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), paid)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_so_many_connections_and_no_more() {
    let node = node(&["--principal-connections-max", "2"]);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut leases = connect(&node).await;
        assert_eq!(reason(leases.get(get()).await), Reason::NotFound);
        open.push(leases);
    }
    let mut third = connect(&node).await;
    let status = third.get(get()).await.unwrap_err();
    assert_eq!(limit(&status), "connections_per_principal");
    drop(open.pop());
    let freed = async {
        while reason(third.get(get()).await) != Reason::NotFound {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed)
        .await
        .unwrap();
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> Reason {
    Refusal::from_status(&answer.unwrap_err()).unwrap().reason
}

fn show<T>(request: &mut Request<T>, token: &str) {
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_failed_proofs_from_one_address_are_refused_without_a_look() {
    let node = node(&["--failed-proofs-max", "1"]);
    let mut seen = Vec::new();
    // Each connection fails twice, which is far below its own limit.
    for _ in 0..8 {
        let mut leases = connect(&node).await;
        for _ in 0..2 {
            let mut bad = Request::new(get());
            show(&mut bad, "e30.e30.e30");
            seen.push(leases.get(bad).await.unwrap_err());
        }
    }
    let unproven = seen.iter().take_while(|status| {
        Refusal::from_status(status).unwrap().reason == Reason::Unauthenticated
    });
    let unproven = unproven.count();
    assert!((10..16).contains(&unproven), "{unproven} were looked at");
    assert_eq!(limit(&seen[unproven]), "failed_proofs_per_source");
    assert!(refused(&node, "failed_proofs_per_source") > 0);
    // A cluster token is looked at still: its bearer shares the address, and not the fault.
    let mut mistaken = Request::new(get());
    show(&mut mistaken, &format!("rft_7_{}", "A".repeat(43)));
    let looked_at = connect(&node).await.get(mistaken).await;
    assert_eq!(reason(looked_at), Reason::Unauthenticated);
    // Callers that show no credential prove nothing, and so fail nothing.
    let mut bare = connect(&node).await;
    assert_eq!(reason(bare.get(get()).await), Reason::NotFound);
}
