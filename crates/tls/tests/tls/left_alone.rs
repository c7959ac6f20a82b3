//! A side that is refused waits before it tries again.

use std::sync::Arc;
use std::time::Duration;

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, Connector, Port, PortFigures, PortLimits, ServerTls};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;

use crate::support::{echo, server, showing, text};

/// How long the client tries.
const TRIES_FOR: Duration = Duration::from_secs(1);
/// Pauses of 50, 100, 200, 400 and 800 ms: the fifth try is the last within the time. The rest is
/// for a read that ends before it has heard of the refusal.
const CONNECTIONS_MAX: u64 = 8;

#[tokio::test]
async fn who_is_refused_again_and_again_connects_less_and_less_often() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = ServerTls {
        client_ca: Some(text(ours.pem())),
        demand_client_certificate: true,
        ..server(&ours.sign(&["127.0.0.1"]))
    };
    let tls = Acceptor::new(tls).unwrap();
    let figures = Arc::<PortFigures>::default();
    let limits = PortLimits::http2(64);
    let port = Port::new("test", listener, Some(tls), limits, figures.clone());
    let mut incoming = port.incoming();
    tokio::spawn(async move { while incoming.next().await.is_some() {} });

    let refused = showing(&ours, &theirs.sign(&[]));
    let mut connector = Connector::new(refused).unwrap().telling();
    let mut tries = 0;
    let trying = async {
        loop {
            let why = echo(&mut connector, address).await.unwrap_err();
            assert!(why.contains("does not trust the CA"), "{why}");
            tries += 1;
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(TRIES_FOR, trying).await.is_err(), "it ends");
    let connections = figures.accepted();
    assert!(tries > CONNECTIONS_MAX, "{tries} tries");
    assert!(
        (1..=CONNECTIONS_MAX).contains(&connections),
        "{connections} connections for {tries} tries"
    );
}
