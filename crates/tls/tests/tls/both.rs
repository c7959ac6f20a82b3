//! With TLS and without it at the same time, while a cluster gets it.

use std::net::SocketAddr;

use http::Uri;
use hyper_util::rt::TokioIo;
use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, ClientTls, Connector, Dialed, PeerName, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

use crate::support::{echo_as, serve, server, showing, text, trusting};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a server of HTTP/2 says on its own.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A port of peers that admits those without TLS, too.
fn both(ours: &Authority) -> ServerTls {
    ServerTls {
        client_ca: Some(text(ours.pem())),
        demand_client_certificate: true,
        peer_names: vec![PeerName::parse("n1.example").unwrap()],
        admit_plain: true,
        ..server(&ours.sign(&["127.0.0.1"]))
    }
}

fn falling_back(tls: ClientTls) -> ClientTls {
    ClientTls {
        fall_back_to_plain: true,
        ..tls
    }
}

/// A server without TLS; `says_settings` as those of HTTP/2 do. It echoes what follows the preface.
async fn plain_server(says_settings: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if says_settings {
                stream.write_all(&SETTINGS).await.unwrap();
            }
            let mut first = [0; PREFACE.len()];
            stream.read_exact(&mut first).await.unwrap();
            if first == PREFACE {
                stream.write_all(b"welcome").await.unwrap();
            }
        }
    });
    address
}

async fn dial(tls: ClientTls, to: SocketAddr) -> Result<Dialed, String> {
    let uri: Uri = format!("http://{to}").parse().unwrap();
    let connected = Connector::new(tls).unwrap().call(uri).await;
    connected
        .map(TokioIo::into_inner)
        .map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_port_that_admits_both_still_judges_certificates() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let address = serve(both(&ours)).await;

    let peer = showing(&ours, &ours.sign(&["n1.example"]));
    assert_eq!(echo_as(peer, address).await, Ok(()));
    let stranger = showing(&ours, &theirs.sign(&["n1.example"]));
    assert!(echo_as(stranger, address).await.is_err());
    let client = showing(&ours, &ours.sign(&["client.example"]));
    assert!(echo_as(client, address).await.is_err());

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(PREFACE).await.unwrap();
    let mut heard = [0; PREFACE.len()];
    plain.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, PREFACE);
    let mut other = TcpStream::connect(address).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut told = String::new();
    other.read_to_string(&mut told).await.unwrap();
    assert!(told.contains("400 Bad Request"), "{told}");
}

#[test]
fn a_port_that_admits_both_does_not_admit_peers_alone() {
    let ours = Authority::new("ours");
    assert!(!Acceptor::new(both(&ours)).unwrap().admits_peers_alone());
    let tls_alone = ServerTls {
        admit_plain: false,
        ..both(&ours)
    };
    assert!(Acceptor::new(tls_alone).unwrap().admits_peers_alone());
}

#[tokio::test]
async fn who_may_fall_back_does_so_where_no_tls_is_spoken() {
    let ours = Authority::new("ours");
    for says_settings in [true, false] {
        let address = plain_server(says_settings).await;
        assert!(dial(trusting(&ours), address).await.is_err());

        let mut stream = dial(falling_back(trusting(&ours)), address).await.unwrap();
        assert!(!stream.is_encrypted());
        stream.write_all(PREFACE).await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        assert!(heard.ends_with(b"welcome"), "{heard:?}");
    }
}

#[tokio::test]
async fn nobody_falls_back_for_a_certificate() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let address = serve(both(&ours)).await;

    // The server's is not good.
    let error = dial(falling_back(trusting(&theirs)), address).await.err();
    let why = error.expect("no connection");
    assert!(why.contains("signed by none of the CAs"), "{why}");
    // The server finds that this one's is not.
    let shows = showing(&ours, &theirs.sign(&["n1.example"]));
    let why = echo_as(falling_back(shows), address).await.unwrap_err();
    assert!(why.contains("does not trust the CA"), "{why}");
    let good = showing(&ours, &ours.sign(&["n1.example"]));
    let stream = dial(falling_back(good), address).await.unwrap();
    assert!(stream.is_encrypted());
}
