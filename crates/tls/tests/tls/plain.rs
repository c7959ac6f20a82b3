//! One side with TLS, the other without.

use ringfence_testkit::certificates::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{echo_as, serve, server, trusting};

/// What a port with TLS answers to these words.
async fn answer(words: &[u8]) -> Vec<u8> {
    let address = serve(server(&Authority::new("ours").sign(&["127.0.0.1"]))).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(words).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn grpc_without_tls_is_sent_off_with_the_reason() {
    let answer = answer(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;

    let (settings, goodbye) = answer.split_at(9);
    assert_eq!(settings, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(goodbye[3], 7, "GOAWAY");
    assert_eq!(usize::from(goodbye[2]), goodbye.len() - 9, "its length");
    let why = String::from_utf8_lossy(&goodbye[17..]).into_owned();
    assert!(why.contains("use https://"), "{why}");
}

#[tokio::test]
async fn a_browser_without_tls_is_sent_off_with_the_reason() {
    let answer = answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;

    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("use https://"), "{answer}");
}

#[tokio::test]
async fn a_server_without_tls_is_recognized() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // What a gRPC server says first.
        stream
            .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
    });

    let why = echo_as(trusting(&Authority::new("ours")), address)
        .await
        .unwrap_err();
    assert!(why.contains("it does not speak TLS; use http://"), "{why}");
}

#[tokio::test]
async fn a_server_that_hangs_up_during_the_handshake_is_told_of() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 5];
        stream.read_exact(&mut some).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
    });

    let why = echo_as(trusting(&Authority::new("ours")), address)
        .await
        .unwrap_err();
    assert!(why.contains("does it speak TLS?"), "{why}");
}
