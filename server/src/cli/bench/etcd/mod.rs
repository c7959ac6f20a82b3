//! The same work on etcd, if there is one on PATH: the ratio says more than a figure.
//!
//! Three nodes on loopback, fsync on, as etcd is shipped. Acquiring is what its own lock recipe
//! does (put a key under a lease if it does not exist), releasing deletes the key.

mod messages;
mod works;

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use self::messages::{StatusRequest, StatusResponse};
use super::load::{Load, Measured};
use crate::cli::nodes::{Child, Held, Ports};
use crate::cli::{Failure, exit};

/// How long etcd may take to form a cluster.
const READY_LIMIT: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(100);
const CLIENTS_PER_CONNECTION: u32 = 8;

/// What is measured of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Put a key under a lease if it does not exist, and delete it.
    Cycle,
    /// The same with a lease of its own, that is revoked with the key.
    Full,
    /// Linearizable reads of a key that is there.
    Check,
    /// Streams that keep many leases alive, one message each.
    Keepalive {
        /// Leases per stream.
        leases: u32,
    },
}

/// Measures the cycle; nothing if there is no etcd.
///
/// # Errors
/// If there is one and it does not work.
pub(super) async fn cycle(load: Load) -> Result<Option<Measured>, Failure> {
    match is_on_path() {
        true => measure(Work::Cycle, load).await.map(Some),
        false => Ok(None),
    }
}

/// Measures `work` on three nodes of etcd.
///
/// # Errors
/// If there is none on PATH, or it does not work.
pub(super) async fn measure(work: Work, load: Load) -> Result<Measured, Failure> {
    if !is_on_path() {
        return Err(Failure::usage("there is no etcd on PATH")
            .hint("install etcd, or let `cargo xtask bench` build one"));
    }
    let etcd = Etcd::start().await?;
    let measured = match etcd.channels(load.clients).await {
        Ok(channels) => works::measure(work, load, &channels).await,
        Err(failure) => Err(failure),
    };
    etcd.stop().await;
    measured
}

fn is_on_path() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file())
}

struct Etcd {
    nodes: Vec<Child>,
    clients: Vec<SocketAddr>,
    /// Keeps the directory until the nodes have ended.
    _scratch: TempDir,
    _ports: Held,
}

impl Etcd {
    async fn start() -> Result<Self, Failure> {
        let failed = |cause: std::io::Error| failed(&format!("cannot be started: {cause}"));
        let scratch = tempfile::Builder::new()
            .prefix("ringfence-etcd-")
            .tempdir()
            .map_err(failed)?;
        let (addresses, held) = Ports::Free.assign(3)?;
        let names = ["e1", "e2", "e3"];
        let members = names.iter().zip(&addresses);
        let members: Vec<String> = members
            .map(|(name, [_, peer, _])| format!("{name}=http://{peer}"))
            .collect();
        let mut nodes = Vec::new();
        let mut clients = Vec::new();
        for (name, [client, peer, _]) in names.iter().zip(addresses) {
            let data = scratch.path().join(name);
            let arguments = [
                format!("--name={name}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls=http://{client}"),
                format!("--advertise-client-urls=http://{client}"),
                format!("--listen-peer-urls=http://{peer}"),
                format!("--initial-advertise-peer-urls=http://{peer}"),
                format!("--initial-cluster={}", members.join(",")),
                "--log-level=error".to_owned(),
            ];
            let log = scratch.path().join(format!("{name}.log"));
            nodes.push(Child::start("etcd".as_ref(), &arguments, &log).map_err(failed)?);
            clients.push(client);
        }
        Ok(Self {
            nodes,
            clients,
            _scratch: scratch,
            _ports: held,
        })
    }

    /// Connections to the leader, one for every eight clients, as to a cluster of Ringfence.
    async fn channels(&self, clients: u32) -> Result<Vec<Channel>, Failure> {
        let leader = tokio::time::timeout(READY_LIMIT, self.leader()).await;
        let leader = leader.map_err(|_| failed("does not form a cluster within 20 s"))?;
        let mut channels = Vec::new();
        for _ in 0..clients.div_ceil(CLIENTS_PER_CONNECTION) {
            let channel = connect(leader).await;
            channels.push(channel.ok_or_else(|| failed("does not answer"))?);
        }
        Ok(channels)
    }

    async fn leader(&self) -> SocketAddr {
        loop {
            for client in &self.clients {
                let Some(channel) = connect(*client).await else {
                    continue;
                };
                let asked = call(
                    &channel,
                    "/etcdserverpb.Maintenance/Status",
                    StatusRequest {},
                );
                let Ok(status): Result<StatusResponse, Failure> = asked.await else {
                    continue;
                };
                let member = status.header.map(|header| header.member_id);
                if status.leader != 0 && member == Some(status.leader) {
                    return *client;
                }
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn stop(self) {
        for mut node in self.nodes {
            node.kill().await;
        }
    }
}

async fn connect(client: SocketAddr) -> Option<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{client}")).ok()?;
    endpoint.tcp_nodelay(true).connect().await.ok()
}

/// A unary call.
async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A, Failure>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready()
        .await
        .map_err(|cause| failed(&cause.to_string()))?;
    let request = tonic::Request::new(request);
    let path = PathAndQuery::from_static(path);
    let answer = grpc
        .unary(request, path, ProstCodec::<Q, A>::default())
        .await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| failed(status.message()))
}

fn failed(why: &str) -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "FAULT",
        format!("etcd, which is on PATH, {why}"),
    )
    .hint("take it off PATH to measure without the comparison")
}
