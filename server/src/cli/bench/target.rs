//! The cluster that is measured: a given one, or three nodes of our own.

use std::time::Duration;

use ringfence_client::unstable::Channel;
use ringfence_client::{Client, ConnectError};
use ringfence_core::Mode;
use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;

use crate::cli::nodes::{Nodes, Plan, Ports};
use crate::cli::tls::TlsArgs;
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
    tls: TlsArgs,
}

impl Target {
    /// The cluster that `global` names, or one of our own.
    ///
    /// # Errors
    /// If nodes of our own do not start.
    pub(super) async fn reach(global: &Global, own: bool) -> Result<Self, Failure> {
        if !own && global.endpoints_given() {
            global.tls.check(global)?;
            return Ok(Self {
                endpoints: global.endpoints(),
                nodes: None,
                tls: global.tls.clone(),
            });
        }
        let plan = Plan {
            count: 3,
            ports: Ports::Free,
            data_dir: None,
            trial: false,
            access: Mode::Off,
        };
        let mut nodes = Nodes::start(&plan)?;
        match nodes.ready().await {
            Ok(_) => Ok(Self {
                endpoints: nodes.endpoints(),
                nodes: Some(nodes),
                tls: TlsArgs::default(),
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
    /// If no node knows a leader, the nodes refuse this caller, or the leader cannot be reached.
    pub(super) async fn leader_channels(&self, clients: u32) -> Result<Vec<Channel>, Failure> {
        let leader = self.leader().await?;
        let mut channels = Vec::new();
        for _ in 0..clients.div_ceil(CLIENTS_PER_CONNECTION) {
            channels.push(self.connect(&leader).await?);
        }
        Ok(channels)
    }

    async fn leader(&self) -> Result<String, Failure> {
        let mut denied = None;
        for endpoint in &self.endpoints {
            let channel = match self.connect(endpoint).await {
                Ok(channel) => channel,
                Err(failure) if failure.exit == exit::DENIED => {
                    denied = Some(failure);
                    continue;
                }
                Err(_) => continue,
            };
            let status = ClusterClient::new(channel).status(StatusRequest {}).await;
            match status {
                Ok(status) if status.get_ref().leader_id != 0 => {
                    return Ok(status.into_inner().leader_client_address);
                }
                Ok(_) => {}
                Err(status) => denied = Failure::denied(&status).or(denied),
            }
        }
        Err(denied.unwrap_or_else(|| {
            Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", "no node knows a leader")
                .hint("`cluster status` shows which nodes answer")
        }))
    }

    /// A client of the client crate.
    ///
    /// # Errors
    /// If no node answers, or what was given for TLS cannot be used.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let builder = Client::builder().endpoints(self.endpoints.clone());
        let builder = self.tls.set_up(builder).map_err(Failure::usage)?;
        builder.connect().await.map_err(|cause| match cause {
            ConnectError::Refused(refusal) => (*refusal).into(),
            cause => Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", cause.to_string())
                .hint("check the addresses in --endpoints"),
        })
    }

    async fn connect(&self, address: &str) -> Result<Channel, Failure> {
        let connected = self.tls.connect(address, CONNECT_LIMIT).await;
        connected.map(|node| node.channel).map_err(|not| {
            let why = format!("cannot reach {address}: {}", not.why);
            let silent = || Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", why);
            not.denied.unwrap_or_else(silent)
        })
    }

    /// Stops what we started.
    pub(super) async fn leave(self) {
        if let Some(nodes) = self.nodes {
            nodes.stop().await;
        }
    }
}
