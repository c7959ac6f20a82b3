//! The cluster that is measured: somebody's, or three nodes of our own.

use std::time::Duration;

use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use tonic::transport::{Channel, Endpoint};

use crate::cli::nodes::{Nodes, Plan, Ports};
use crate::cli::{Failure, Global, exit};

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How many clients share a connection in the unary measurements.
const CLIENTS_PER_CONNECTION: u32 = 8;

/// The cluster that is measured.
pub(super) struct Target {
    pub(super) endpoints: Vec<String>,
    /// Ours, if we started it.
    pub(super) nodes: Option<Nodes>,
}

impl Target {
    /// The cluster that `global` names, or one of our own.
    ///
    /// # Errors
    /// If nodes of our own do not start.
    pub(super) async fn reach(global: &Global, own: bool) -> Result<Self, Failure> {
        if !own && global.endpoints_given() {
            return Ok(Self {
                endpoints: global.endpoints(),
                nodes: None,
            });
        }
        let plan = Plan {
            count: 3,
            ports: Ports::Free,
            data_dir: None,
            trial: false,
        };
        let mut nodes = Nodes::start(&plan)?;
        match nodes.ready().await {
            Ok(_) => Ok(Self {
                endpoints: nodes.endpoints(),
                nodes: Some(nodes),
            }),
            Err(failure) => {
                nodes.stop().await;
                Err(failure)
            }
        }
    }

    /// Says which cluster it is, for the heading.
    pub(super) fn describe(&self) -> String {
        match &self.nodes {
            Some(nodes) => format!("{} nodes of our own on this machine", nodes.all().len()),
            None => self.endpoints.join(","),
        }
    }

    /// Connections to the leader, one for every eight clients.
    ///
    /// # Errors
    /// If no node knows a leader, or it cannot be reached.
    pub(super) async fn leader_channels(&self, clients: u32) -> Result<Vec<Channel>, Failure> {
        let leader = self.leader().await?;
        let mut channels = Vec::new();
        for _ in 0..clients.div_ceil(CLIENTS_PER_CONNECTION) {
            channels.push(connect(&leader).await?);
        }
        Ok(channels)
    }

    async fn leader(&self) -> Result<String, Failure> {
        for endpoint in &self.endpoints {
            let Ok(channel) = connect(endpoint).await else {
                continue;
            };
            let status = ClusterClient::new(channel).status(StatusRequest {}).await;
            match status {
                Ok(status) if status.get_ref().leader_id != 0 => {
                    return Ok(status.into_inner().leader_client_address);
                }
                Ok(_) | Err(_) => {}
            }
        }
        Err(
            Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", "no node knows a leader")
                .hint("`cluster status` shows which nodes answer"),
        )
    }

    /// Stops what we started.
    pub(super) async fn leave(self) {
        if let Some(nodes) = self.nodes {
            nodes.stop().await;
        }
    }
}

async fn connect(address: &str) -> Result<Channel, Failure> {
    let address = match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(address.clone())
        .map_err(|cause| Failure::usage(format!("endpoint {address}: {cause}")))?;
    let connected = endpoint
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_LIMIT)
        .connect()
        .await;
    connected.map_err(|cause| {
        Failure::new(
            exit::UNAVAILABLE,
            "UNAVAILABLE",
            format!("cannot reach {address}: {cause}"),
        )
    })
}
