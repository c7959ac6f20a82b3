//! The same cycle against etcd, if there is one on PATH: the ratio says more than a figure.
//!
//! Three nodes on loopback, fsync on, as etcd is shipped. Acquiring is what its own lock recipe
//! does (put a key under a lease if it does not exist), releasing deletes the key.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::load::Measured;
use super::load::{Client, Load};
use crate::cli::nodes::{Child, Held, Ports};
use crate::cli::{Failure, exit};

/// How long etcd may take to form a cluster.
const READY_LIMIT: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(100);
const CLIENTS_PER_CONNECTION: u32 = 8;

/// Measures etcd; nothing if there is none.
///
/// # Errors
/// If there is one and it does not work.
pub(super) async fn cycle(load: Load) -> Result<Option<Measured>, Failure> {
    if !is_on_path() {
        return Ok(None);
    }
    let etcd = Etcd::start().await?;
    let measured = etcd.measure(load).await;
    etcd.stop().await;
    measured.map(Some)
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

    async fn measure(&self, load: Load) -> Result<Measured, Failure> {
        let leader = tokio::time::timeout(READY_LIMIT, self.leader()).await;
        let leader = leader.map_err(|_| failed("does not form a cluster within 20 s"))?;
        let mut channels = Vec::new();
        for _ in 0..load.clients.div_ceil(CLIENTS_PER_CONNECTION) {
            channels.push(
                connect(leader)
                    .await
                    .ok_or_else(|| failed("does not answer"))?,
            );
        }
        load.drive(1, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            async move {
                let key = format!("bench/{}", client.number).into_bytes();
                let grant = LeaseGrantRequest { ttl: 60, id: 0 };
                let lease: LeaseGrantResponse =
                    call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await?;
                client.ready().await;
                while !client.is_over() {
                    let began = client.now();
                    let acquire = TxnRequest::put_if_absent(&key, lease.id);
                    let acquired: TxnResponse =
                        call(&channel, "/etcdserverpb.KV/Txn", acquire).await?;
                    if !acquired.succeeded {
                        return Err(failed("refused a key that is free"));
                    }
                    let release = DeleteRangeRequest { key: key.clone() };
                    let _: DeleteRangeResponse =
                        call(&channel, "/etcdserverpb.KV/DeleteRange", release).await?;
                    client.took(0, began, 1);
                }
                Ok(client)
            }
        })
        .await
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

// The few fields of etcd's protocol that the cycle needs; fields that are absent here are skipped.

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

impl TxnRequest {
    fn put_if_absent(key: &[u8], lease: i64) -> Self {
        const CREATE_REVISION: i32 = 1;
        let compare = Compare {
            result: 0,
            target: CREATE_REVISION,
            key: key.to_vec(),
            create_revision: 0,
        };
        let put = PutRequest {
            key: key.to_vec(),
            value: b"bench".to_vec(),
            lease,
        };
        Self {
            compare: vec![compare],
            success: vec![RequestOp { put: Some(put) }],
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, tag = "5")]
    create_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeResponse {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}
