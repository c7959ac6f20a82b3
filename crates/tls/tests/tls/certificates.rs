//! Whom each side believes.

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{ClientTls, Part, ServerTls};
use tokio::net::TcpStream;

use crate::support::{echo_as, serve, server, showing, text, trusting};

fn demanding(authority: &Authority, clients: &Authority) -> ServerTls {
    ServerTls {
        client_ca: Some(text(clients.pem())),
        demand_client_certificate: true,
        ..server(&authority.sign(&["127.0.0.1"]))
    }
}

#[tokio::test]
async fn a_certificate_of_a_trusted_authority_is_believed() {
    let ours = Authority::new("ours");
    let address = serve(server(&ours.sign(&["127.0.0.1"]))).await;

    assert_eq!(echo_as(trusting(&ours), address).await, Ok(()));
}

#[tokio::test]
async fn one_of_several_authorities_is_enough() {
    let (former, ours) = (Authority::new("former"), Authority::new("ours"));
    let address = serve(server(&ours.sign(&["127.0.0.1"]))).await;
    let both = ClientTls {
        ca: vec![text(former.pem()), text(ours.pem())],
        ..ClientTls::default()
    };
    let bundle = ClientTls {
        ca: vec![text(&format!("{}{}", former.pem(), ours.pem()))],
        ..ClientTls::default()
    };

    assert_eq!(echo_as(both, address).await, Ok(()));
    assert_eq!(echo_as(bundle, address).await, Ok(()));
}

#[tokio::test]
async fn a_server_of_another_authority_is_left() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let address = serve(server(&theirs.sign(&["127.0.0.1"]))).await;

    let why = echo_as(trusting(&ours), address).await.unwrap_err();
    assert!(
        why.contains("none of the CAs that were named; name the one that signed it"),
        "{why}"
    );
}

#[tokio::test]
async fn an_expired_server_is_left() {
    let ours = Authority::new("ours");
    let address = serve(server(&ours.sign_expired(&["127.0.0.1"]))).await;

    let why = echo_as(trusting(&ours), address).await.unwrap_err();
    assert!(
        why.contains("has expired; give the server a new one"),
        "{why}"
    );
}

#[tokio::test]
async fn a_certificate_is_for_the_name_that_was_connected_to_or_the_one_that_was_said() {
    let ours = Authority::new("ours");
    let port = serve(server(&ours.sign(&["n1.example", "n2.example"])))
        .await
        .port();
    let address = format!("127.0.0.1:{port}");

    let why = echo_as(trusting(&ours), &address).await.unwrap_err();
    assert!(why.contains("not for 127.0.0.1 but for"), "{why}");
    assert!(why.contains("n1.example"), "{why}");

    let said = |name: &str| ClientTls {
        server_name: Some(name.to_owned()),
        ..trusting(&ours)
    };
    assert_eq!(echo_as(said("n2.example"), &address).await, Ok(()));
    assert!(echo_as(said("n3.example"), &address).await.is_err());
    let refused = ringfence_tls::Connector::new(said("no name"))
        .err()
        .unwrap();
    assert_eq!(refused.part, Part::ServerName);
}

#[tokio::test]
async fn a_demanded_certificate_lets_a_client_in() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let address = serve(demanding(&ours, &clients)).await;

    let shown = showing(&ours, &clients.sign(&[]));
    assert_eq!(echo_as(shown, address).await, Ok(()));
}

#[tokio::test]
async fn a_client_without_the_demanded_certificate_hears_what_is_missing() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let address = serve(demanding(&ours, &clients)).await;

    let none = echo_as(trusting(&ours), address).await.unwrap_err();
    assert!(
        none.contains("demands a client certificate; give one with its key"),
        "{none}"
    );

    let strange = showing(&ours, &ours.sign(&[]));
    let strange = echo_as(strange, address).await.unwrap_err();
    assert!(
        strange.contains("does not trust the CA of this client's certificate"),
        "{strange}"
    );

    let expired = showing(&ours, &clients.sign_expired(&[]));
    let expired = echo_as(expired, address).await.unwrap_err();
    assert!(
        expired.contains("this client's certificate has expired"),
        "{expired}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_demanded_is_judged_all_the_same() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let tls = ServerTls {
        demand_client_certificate: false,
        ..demanding(&ours, &clients)
    };
    let address = serve(tls).await;

    assert_eq!(echo_as(trusting(&ours), address).await, Ok(()));
    assert!(
        echo_as(showing(&ours, &ours.sign(&[])), address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn those_who_say_nothing_hold_up_nobody() {
    let ours = Authority::new("ours");
    let address = serve(server(&ours.sign(&["127.0.0.1"]))).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }

    assert_eq!(echo_as(trusting(&ours), address).await, Ok(()));
}
