//! Nodes that know each other by a secret.

use std::path::Path;

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, ClientTls, ClusterSecret, NODE_NAME, ServerTls};

use crate::support::{echo_as, serve, text};

/// The secret of 32 bytes from this one on.
fn secret(first: u8) -> ClusterSecret {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.secret");
    let random: Vec<u8> = (first..first + 32).collect();
    save(&path, &random);
    ClusterSecret::read(&path).unwrap()
}

fn save(path: &Path, random: &[u8]) {
    std::fs::write(path, random).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o400)).unwrap();
    }
}

fn node(secrets: &[u8]) -> (ServerTls, ClientTls) {
    let secrets: Vec<ClusterSecret> = secrets.iter().map(|first| secret(*first)).collect();
    ClusterSecret::node(&secrets)
}

#[tokio::test]
async fn nodes_of_one_secret_admit_each_other_and_nobody_else() {
    let (accept, _) = node(&[0]);
    assert!(Acceptor::new(accept.clone()).unwrap().admits_peers_alone());
    let address = serve(accept).await;
    let (_, ours) = node(&[0]);
    assert_eq!(echo_as(ours.clone(), address).await, Ok(()));

    let (_, theirs) = node(&[100]);
    let why = echo_as(theirs.clone(), address).await.unwrap_err();
    assert!(why.contains("signed by none of the CAs"), "{why}");
    // One that knows the cluster's CA, and has a certificate of its own making.
    let shows_theirs = ClientTls {
        certificate: theirs.certificate,
        ..ours.clone()
    };
    let why = echo_as(shows_theirs, address).await.unwrap_err();
    assert!(why.contains("does not trust the CA"), "{why}");
    let shows_none = ClientTls {
        certificate: None,
        ..ours
    };
    let why = echo_as(shows_none, address).await.unwrap_err();
    assert!(why.contains("demands a client certificate"), "{why}");
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_no_nodes_whatever_its_name() {
    let (accept, ours) = node(&[0]);
    let address = serve(accept).await;
    let clients = Authority::new("clients");
    for names in [&[][..], &["me.example"], &[NODE_NAME]] {
        let signed = clients.sign(names);
        let client = ClientTls {
            certificate: Some((text(&signed.certificate), text(&signed.key))),
            ..ours.clone()
        };
        let why = echo_as(client, address).await.unwrap_err();
        assert!(why.contains("does not trust the CA"), "{names:?}: {why}");
    }
}

#[tokio::test]
async fn a_node_connects_to_nobody_who_has_not_the_secret() {
    let strangers = Authority::new("strangers");
    let signed = strangers.sign(&[NODE_NAME]);
    let address = serve(crate::support::server(&signed)).await;
    let (_, ours) = node(&[0]);
    let why = echo_as(ours, address).await.unwrap_err();
    assert!(why.contains("signed by none of the CAs"), "{why}");
}

#[tokio::test]
async fn a_secret_is_replaced_in_three_rounds() {
    const ROUNDS: [&[u8]; 4] = [&[0], &[0, 100], &[100, 0], &[100]];
    for pair in ROUNDS.windows(2) {
        for (server, client) in [(0, 1), (1, 0), (1, 1)] {
            let address = serve(node(pair[server]).0).await;
            let (_, connect) = node(pair[client]);
            let heard = echo_as(connect, address).await;
            assert_eq!(heard, Ok(()), "{pair:?}");
        }
    }
    let address = serve(node(&[0]).0).await;
    assert!(echo_as(node(&[100, 0]).1, address).await.is_err());
}
