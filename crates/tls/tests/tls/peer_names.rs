//! Whose certificate is a peer's: not every one of the authority.

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, Part, PeerName, ServerTls};

use crate::support::{echo_as, serve, server, showing, text, trusting};

/// A port of peers with these names.
fn peers(ours: &Authority, names: &[&str]) -> ServerTls {
    ServerTls {
        client_ca: Some(text(ours.pem())),
        demand_client_certificate: true,
        peer_names: names.iter().map(|n| PeerName::parse(n).unwrap()).collect(),
        ..server(&ours.sign(&["127.0.0.1"]))
    }
}

#[tokio::test]
async fn a_client_certificate_of_the_same_authority_is_no_peers() {
    let ours = Authority::new("ours");
    let names = ["n1.example", "*.peers.example", "10.1.2.3"];
    let address = serve(peers(&ours, &names)).await;

    let allowed: [&[&str]; 6] = [
        &["n1.example"],
        &["N1.EXAMPLE"],
        &["client.example", "n1.example"],
        &["n7.peers.example"],
        &["*.peers.example"],
        &["10.1.2.3"],
    ];
    for has in allowed {
        let shown = showing(&ours, &ours.sign(has));
        assert_eq!(echo_as(shown, address).await, Ok(()), "{has:?}");
    }
    let refused: [&[&str]; 7] = [
        &[],
        &["client.example"],
        &["xn1.example"],
        &["a.n1.example"],
        &["peers.example"],
        &["a.b.peers.example"],
        &["10.1.2.4"],
    ];
    for has in refused {
        let shown = showing(&ours, &ours.sign(has));
        let why = echo_as(shown, address).await.unwrap_err();
        assert!(why.contains("one of their names"), "{has:?}: {why}");
    }
    let why = echo_as(trusting(&ours), address).await.unwrap_err();
    assert!(why.contains("demands a client certificate"), "{why}");
}

#[tokio::test]
async fn a_peers_name_in_a_certificate_of_a_stranger_is_worth_nothing() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let address = serve(peers(&ours, &["n1.example"])).await;

    let shown = showing(&ours, &theirs.sign(&["n1.example"]));
    let why = echo_as(shown, address).await.unwrap_err();
    assert!(why.contains("does not trust the CA"), "{why}");
    let shown = showing(&ours, &ours.sign_expired(&["n1.example"]));
    let why = echo_as(shown, address).await.unwrap_err();
    assert!(why.contains("has expired"), "{why}");
}

#[test]
fn a_port_says_whether_it_admits_peers_alone() {
    let ours = Authority::new("ours");
    let named = peers(&ours, &["n1.example"]);
    assert!(Acceptor::new(named.clone()).unwrap().admits_peers_alone());
    let any = peers(&ours, &[]);
    assert!(!Acceptor::new(any).unwrap().admits_peers_alone());
    // Who shows none would pass.
    let lax = ServerTls {
        demand_client_certificate: false,
        ..named.clone()
    };
    assert!(!Acceptor::new(lax).unwrap().admits_peers_alone());
    let nobody = ServerTls {
        client_ca: None,
        demand_client_certificate: false,
        ..named
    };
    let error = Acceptor::new(nobody).err().unwrap();
    assert_eq!(error.part, Part::Authority);
}
