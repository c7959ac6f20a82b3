//! The peer ports of a cluster with certificates, and ways to them: with the certificate of a node, with
//! that of a client of the same CA, and with none.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ringfence_proto::raft::HelloRequest;
use ringfence_proto::raft::peers_client::PeersClient;
use ringfence_testkit::certificates::{Authority, Signed};
use ringfence_tests::Cluster;
use ringfence_tls::{ClientTls, Connector, Pem};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

/// A name that certificates of nodes have, and no other.
const NODES: &str = "peer.example";
/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The CA of nodes and clients.
pub(super) struct Certificates {
    authority: Authority,
}

/// A node as its peers name it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) address: String,
    cluster: String,
    name: String,
}

impl Certificates {
    /// A new CA.
    pub(super) fn new() -> Self {
        let authority = Authority::new("nodes and clients");
        Self { authority }
    }

    /// The flags of nodes with a certificate each; files go to this folder.
    pub(super) fn flags(&self, folder: &Path) -> Vec<String> {
        let files = self
            .authority
            .sign(&["127.0.0.1", NODES])
            .save(folder, "node");
        let ca = self.authority.save(folder, "ca");
        vec![
            format!("--peer-cert-file={}", files.certificate.display()),
            format!("--peer-key-file={}", files.key.display()),
            format!("--peer-trusted-ca-file={}", ca.display()),
            format!("--peer-tls-name={NODES}"),
        ]
    }

    /// What connects with the certificate of a node.
    pub(super) fn of_a_node(&self) -> Connector {
        self.connector(Some(&self.authority.sign(&[NODES])))
    }

    /// With that of a client.
    pub(super) fn of_a_client(&self) -> Connector {
        self.connector(Some(&self.authority.sign(&["client.example"])))
    }

    /// With one of another CA, which has the name of nodes.
    pub(super) fn of_another_authority(&self) -> Connector {
        self.connector(Some(&Authority::new("others").sign(&[NODES])))
    }

    /// Without any.
    pub(super) fn without(&self) -> Connector {
        self.connector(None)
    }

    fn connector(&self, shown: Option<&Signed>) -> Connector {
        let text = |text: &str| Pem::Text(text.as_bytes().into());
        let tls = ClientTls {
            ca: vec![text(self.authority.pem())],
            certificate: shown.map(|signed| (text(&signed.certificate), text(&signed.key))),
            server_name: None,
            fall_back_to_plain: false,
        };
        Connector::new(tls).unwrap().connect_timeout(CONNECT_MAX)
    }
}

/// A channel to a peer port.
pub(super) fn channel(address: &str, connector: Connector) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint
        .origin(format!("https://{address}").parse().unwrap())
        .connect_timeout(CONNECT_MAX)
        .connect_with_connector_lazy(connector)
}

/// What each node says of itself to a peer.
pub(super) async fn nodes(cluster: &Cluster, connector: &Connector) -> Vec<Node> {
    let mut nodes = Vec::new();
    for at in 0..cluster.len() {
        let address = cluster.peer(at);
        let mut peers = PeersClient::new(channel(&address, connector.clone()));
        let hello = peers
            .hello(HelloRequest::default())
            .await
            .unwrap()
            .into_inner();
        let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (cluster, incarnation): (String, String) =
            (hex(&hello.cluster), hex(&hello.incarnation));
        nodes.push(Node {
            address,
            cluster,
            name: format!("{}.{incarnation}", hello.node_id),
        });
    }
    nodes
}

impl Node {
    /// The headers of a call to it from a node that is no member.
    pub(super) fn headers(&self) -> Vec<(&'static str, MetadataValue<Ascii>)> {
        let from = format!("99.{}", "5a".repeat(16));
        vec![
            ("ringfence-cluster", self.cluster.parse().unwrap()),
            ("ringfence-from", from.parse().unwrap()),
            ("ringfence-to", self.name.parse().unwrap()),
            ("ringfence-records", "4".parse().unwrap()),
        ]
    }
}
