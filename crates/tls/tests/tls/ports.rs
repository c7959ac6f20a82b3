//! A port keeps its limits, and connections that send nothing go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfence_tls::{Port, PortFigures, PortLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_stream::StreamExt;

const PATIENCE: Duration = Duration::from_secs(20);

/// A port that answers each message with itself.
async fn echo(limits: PortLimits) -> (SocketAddr, Arc<PortFigures>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let figures = Arc::<PortFigures>::default();
    let mut incoming = Port::new("test", listener, None, limits, figures.clone()).incoming();
    tokio::spawn(async move {
        while let Some(connection) = incoming.next().await {
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(connection.unwrap());
                tokio::io::copy(&mut from, &mut to).await.ok();
            });
        }
    });
    (address, figures)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waited)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
}

/// Whether the other side has closed; waits for it.
async fn closes(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    matches!(
        timeout(PATIENCE, stream.read(&mut byte)).await,
        Ok(Ok(0) | Err(_))
    )
}

async fn says(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).await.unwrap();
    let mut heard = vec![0; words.len()];
    timeout(PATIENCE, stream.read_exact(&mut heard))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(heard, words);
}

fn short(connections: usize) -> PortLimits {
    PortLimits {
        first_bytes: 4,
        first_bytes_max: Duration::from_millis(200),
        ..PortLimits::http2(connections)
    }
}

#[tokio::test]
async fn a_connection_that_sends_too_little_is_closed_in_time() {
    let (address, figures) = echo(short(8)).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut halting = TcpStream::connect(address).await.unwrap();
    let mut speaks = TcpStream::connect(address).await.unwrap();
    says(&mut halting, b"abc").await;
    says(&mut speaks, b"abcd").await;

    assert!(closes(&mut silent).await);
    assert!(closes(&mut halting).await);

    until("two timeouts", || {
        figures.timed_out() == 2 && figures.open() == 1
    })
    .await;
    says(&mut speaks, b"still here").await;
}

#[tokio::test]
async fn a_full_port_refuses_but_not_for_the_sake_of_the_silent() {
    let limits = PortLimits {
        first_bytes_max: PATIENCE,
        ..short(2)
    };
    let (address, figures) = echo(limits).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    says(&mut first, b"first").await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    until("both are open", || figures.open() == 2).await;

    let mut second = TcpStream::connect(address).await.unwrap();
    says(&mut second, b"second").await;
    assert!(closes(&mut silent).await);
    assert_eq!(figures.displaced(), 1);

    let mut third = TcpStream::connect(address).await.unwrap();
    assert!(closes(&mut third).await);
    assert_eq!((figures.refused(), figures.open()), (1, 2));
    says(&mut first, b"first again").await;

    drop(first);
    until("room", || figures.open() == 1).await;
    says(&mut TcpStream::connect(address).await.unwrap(), b"fourth").await;
}

#[tokio::test]
async fn a_probe_is_heard_however_many_idle_connections_there_are() {
    let limits = PortLimits {
        first_bytes: 4,
        ..PortLimits::http1(4, PATIENCE)
    };
    let (address, figures) = echo(limits).await;
    let mut idle = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        says(&mut stream, b"idle").await;
        idle.push(stream);
    }

    says(&mut TcpStream::connect(address).await.unwrap(), b"probe").await;

    assert_eq!((figures.refused(), figures.open()), (0, 4));
    assert_eq!(figures.displaced(), 13);
}

#[tokio::test]
async fn a_connection_that_takes_nothing_is_closed_in_time() {
    let limits = PortLimits {
        write_stall_max: Duration::from_millis(300),
        ..short(2)
    };
    let (address, figures) = echo(limits).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let words = vec![b'x'; 1 << 20];
    // Writes until the other side, which is not read, takes no more; then it is closed.
    let flood = async { while stream.write_all(&words).await.is_ok() {} };
    timeout(PATIENCE, flood)
        .await
        .expect("the connection is closed");
    until("counted", || {
        figures.timed_out() == 1 && figures.open() == 0
    })
    .await;
}
