//! Files that change while they are in use.

use std::fs;
use std::path::Path;

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{ClientTls, Connector, Pem, ServerTls};

use crate::support::{echo, echo_as, serve, trusting};

fn server_in(folder: &Path) -> ServerTls {
    ServerTls {
        certificate: Pem::File(folder.join("server.pem")),
        key: Pem::File(folder.join("server.key")),
        client_ca: None,
        demand_client_certificate: false,
        peer_names: Vec::new(),
        admit_plain: false,
    }
}

#[tokio::test]
async fn new_connections_meet_the_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (former, later) = (Authority::new("former"), Authority::new("later"));
    drop(former.sign(&["127.0.0.1"]).save(folder.path(), "server"));
    let address = serve(server_in(folder.path())).await;
    assert_eq!(echo_as(trusting(&former), address).await, Ok(()));

    drop(
        later
            .sign(&["127.0.0.1", "another.example"])
            .save(folder.path(), "server"),
    );

    assert_eq!(echo_as(trusting(&later), address).await, Ok(()));
    assert!(echo_as(trusting(&former), address).await.is_err());
}

#[tokio::test]
async fn a_certificate_without_its_key_changes_nothing_until_the_key_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (former, later) = (Authority::new("former"), Authority::new("later"));
    drop(former.sign(&["127.0.0.1"]).save(folder.path(), "server"));
    let address = serve(server_in(folder.path())).await;
    let signed = later.sign(&["127.0.0.1", "another.example"]);

    fs::write(folder.path().join("server.pem"), &signed.certificate).unwrap();
    assert_eq!(echo_as(trusting(&former), address).await, Ok(()));
    fs::remove_file(folder.path().join("server.key")).unwrap();
    assert_eq!(echo_as(trusting(&former), address).await, Ok(()));

    fs::write(folder.path().join("server.key"), &signed.key).unwrap();
    assert_eq!(echo_as(trusting(&later), address).await, Ok(()));
}

#[tokio::test]
async fn a_client_takes_a_new_authority_for_its_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (former, later) = (Authority::new("a former one"), Authority::new("later"));
    let files = ClientTls {
        ca: vec![Pem::File(former.save(folder.path(), "ca"))],
        ..ClientTls::default()
    };
    let mut client = Connector::new(files).unwrap();
    drop(later.sign(&["127.0.0.1"]).save(folder.path(), "server"));
    let address = serve(server_in(folder.path())).await;
    assert!(echo(&mut client, address).await.is_err());

    drop(later.save(folder.path(), "ca"));

    assert_eq!(echo(&mut client, address).await, Ok(()));
}
