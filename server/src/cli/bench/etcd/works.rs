//! What the clients of a measurement do.

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::messages::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use super::{Work, call, failed};
use crate::cli::Failure;
use crate::cli::bench::load::{Client, Load, Measured};

/// How long a lease lives, in seconds: that of the sessions of Ringfence, for a fair comparison.
const TTL: i64 = 60;
/// The leases must outlive the opening of all the others.
const LONG_TTL: i64 = 300;

/// Runs all clients of a load.
///
/// # Errors
/// The first failure of any of them.
pub(super) async fn measure(
    work: Work,
    load: Load,
    channels: &[Channel],
) -> Result<Measured, Failure> {
    let series = match work {
        Work::Cycle | Work::Full => 2,
        Work::Check | Work::Keepalive { .. } => 1,
    };
    let client = |client: Client| {
        let channel = channels[client.number as usize % channels.len()].clone();
        async move {
            match work {
                Work::Cycle => cycle(client, &channel).await,
                Work::Full => full(client, &channel).await,
                Work::Check => check(client, &channel).await,
                Work::Keepalive { leases } => keep_alive(client, channel, leases).await,
            }
        }
    };
    load.drive(series, client).await
}

async fn cycle(mut client: Client, channel: &Channel) -> Result<Client, Failure> {
    let key = key(&client);
    let lease = grant(channel, TTL).await?;
    client.ready().await;
    while !client.is_over() {
        let began = client.now();
        put(channel, &key, lease).await?;
        client.took(0, began, 0);
        let release = DeleteRangeRequest { key: key.clone() };
        let _: DeleteRangeResponse = call(channel, "/etcdserverpb.KV/DeleteRange", release).await?;
        client.took(1, began, 1);
    }
    Ok(client)
}

async fn full(mut client: Client, channel: &Channel) -> Result<Client, Failure> {
    let key = key(&client);
    client.ready().await;
    while !client.is_over() {
        let began = client.now();
        let id = grant(channel, TTL).await?;
        put(channel, &key, id).await?;
        client.took(0, began, 0);
        let revoke = LeaseRevokeRequest { id };
        let _: LeaseRevokeResponse =
            call(channel, "/etcdserverpb.Lease/LeaseRevoke", revoke).await?;
        client.took(1, began, 1);
    }
    Ok(client)
}

async fn check(mut client: Client, channel: &Channel) -> Result<Client, Failure> {
    let key = key(&client);
    let lease = grant(channel, TTL).await?;
    put(channel, &key, lease).await?;
    client.ready().await;
    while !client.is_over() {
        let began = client.now();
        let read = RangeRequest { key: key.clone() };
        let found: RangeResponse = call(channel, "/etcdserverpb.KV/Range", read).await?;
        if found
            .keys
            .first()
            .is_none_or(|key| key.create_revision == 0)
        {
            return Err(failed("does not have a key that was put"));
        }
        client.took(0, began, 1);
    }
    Ok(client)
}

/// All leases of a stream are renewed one behind the other, without a wait for an answer between them.
async fn keep_alive(mut client: Client, channel: Channel, count: u32) -> Result<Client, Failure> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(grant(&channel, LONG_TTL).await?);
    }
    let (requests, receiver) = mpsc::channel(leases.len().max(1));
    let requested = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|request| (request, receiver))
    });
    let mut grpc = Grpc::new(channel);
    let ready = grpc.ready().await;
    ready.map_err(|cause| failed(&cause.to_string()))?;
    let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
    let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
    // It answers with the head of its stream when the first request has come.
    let first = LeaseKeepAliveRequest { id: leases[0] };
    requests.send(first).await.map_err(|_| ended())?;
    let opened = grpc
        .streaming(tonic::Request::new(requested), path, codec)
        .await;
    let mut answers = opened
        .map_err(|status| failed(status.message()))?
        .into_inner();
    answers.next().await.ok_or_else(ended)??;
    client.ready().await;
    while !client.is_over() {
        let began = client.now();
        for &id in &leases {
            let request = LeaseKeepAliveRequest { id };
            requests.send(request).await.map_err(|_| ended())?;
        }
        for &id in &leases {
            let answer = answers.next().await.ok_or_else(ended)??;
            if answer.id != id || answer.ttl <= 0 {
                return Err(ended());
            }
        }
        client.took(0, began, u64::from(count));
    }
    Ok(client)
}

/// A key of its own for each client.
fn key(client: &Client) -> Vec<u8> {
    format!("bench/{}", client.number).into_bytes()
}

async fn grant(channel: &Channel, ttl: i64) -> Result<i64, Failure> {
    let grant = LeaseGrantRequest { ttl, id: 0 };
    let lease: LeaseGrantResponse = call(channel, "/etcdserverpb.Lease/LeaseGrant", grant).await?;
    Ok(lease.id)
}

async fn put(channel: &Channel, key: &[u8], lease: i64) -> Result<(), Failure> {
    let acquire = TxnRequest::put_if_absent(key, lease);
    let acquired: TxnResponse = call(channel, "/etcdserverpb.KV/Txn", acquire).await?;
    match acquired.succeeded {
        true => Ok(()),
        false => Err(failed("refused a key that is free")),
    }
}

fn ended() -> Failure {
    failed("ended a stream of keep-alives, or did not renew all leases")
}
