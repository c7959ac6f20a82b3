//! What tests say to a node, with the boring parts filled in.

use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_proto::Refusal;
use ringfence_proto::v1;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::connection_client::ConnectionClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::process::Process;

/// Clients of all services on one connection.
pub(crate) struct Api {
    pub(crate) leases: LeasesClient<Channel>,
    pub(crate) sessions: SessionsClient<Channel>,
    pub(crate) cluster: ClusterClient<Channel>,
    pub(crate) connection: ConnectionClient<Channel>,
}

impl Api {
    pub(crate) async fn of(node: &Process) -> Self {
        Self::at(node.url()).await
    }

    /// Over this URL.
    pub(crate) async fn at(url: String) -> Self {
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        Self {
            leases: LeasesClient::new(channel.clone()),
            sessions: SessionsClient::new(channel.clone()),
            cluster: ClusterClient::new(channel.clone()),
            connection: ConnectionClient::new(channel),
        }
    }

    /// A new session; its requests are numbered by the caller.
    pub(crate) async fn open(&mut self, identity: &str) -> v1::SessionHandle {
        let request = open_request(identity);
        let secret = request.secret.clone();
        let opened = self.sessions.open(request).await.unwrap().into_inner();
        v1::SessionHandle {
            session: opened.session,
            secret,
        }
    }

    /// Acquires without waiting.
    pub(crate) async fn acquire(
        &mut self,
        session: &v1::SessionHandle,
        number: u64,
        name: &str,
    ) -> Result<v1::Grant, Status> {
        let answer = self
            .leases
            .acquire(acquire_request(session, number, name))
            .await?;
        Ok(answer.into_inner().grant.unwrap())
    }

    pub(crate) async fn release(
        &mut self,
        session: &v1::SessionHandle,
        number: u64,
        grant: &v1::Grant,
    ) -> Result<(), Status> {
        let request = v1::ReleaseRequest {
            session: Some(session.clone()),
            number,
            name: grant.name.clone(),
            token: grant.token,
            ..Default::default()
        };
        self.leases.release(request).await.map(|_| ())
    }

    pub(crate) async fn check(&mut self, name: &str, token: u64) -> v1::CheckResponse {
        let request = v1::CheckRequest {
            name: name.to_owned(),
            token,
            read: None,
        };
        self.leases.check(request).await.unwrap().into_inner()
    }

    pub(crate) async fn get(&mut self, name: &str) -> Result<v1::Lease, Status> {
        let request = v1::GetRequest {
            name: name.to_owned(),
            read: None,
        };
        Ok(self.leases.get(request).await?.into_inner().lease.unwrap())
    }

    pub(crate) async fn status(&mut self) -> v1::StatusResponse {
        self.cluster
            .status(v1::StatusRequest {})
            .await
            .unwrap()
            .into_inner()
    }
}

/// A new session with a TTL of a minute.
pub(crate) fn open_request(identity: &str) -> v1::OpenRequest {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = [7; 16];
    id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    v1::OpenRequest {
        id: id.to_vec().into(),
        secret: [id[0]; 16].to_vec().into(),
        ttl_ms: Some(60_000),
        identity: identity.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn acquire_request(
    session: &v1::SessionHandle,
    number: u64,
    name: &str,
) -> v1::AcquireRequest {
    v1::AcquireRequest {
        session: Some(session.clone()),
        number,
        name: name.to_owned(),
        ..Default::default()
    }
}

/// What a status says in our own terms.
pub(crate) fn refusal(status: &Status) -> Refusal {
    Refusal::from_status(status).unwrap_or_else(|| panic!("no reason of ours in {status:?}"))
}
