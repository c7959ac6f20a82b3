//! A session driven by hand over unary calls, as a caller without the client crate has it.

use bytes::Bytes;
use ringfence_client::unstable::Channel;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{AcquireRequest, Grant, OpenRequest, ReleaseRequest, SessionHandle};

use crate::cli::{Failure, exit};

/// How long the sessions of a measurement live: no client keeps them alive, and they clean up
/// after themselves.
pub(super) const TTL_MS: u64 = 60_000;

/// What opens a session.
pub(super) fn open_request(ttl_ms: u64) -> OpenRequest {
    OpenRequest {
        id: Bytes::copy_from_slice(&rand::random::<[u8; 16]>()),
        secret: Bytes::copy_from_slice(&rand::random::<[u8; 16]>()),
        seen_cluster_time_ms: None,
        ttl_ms: Some(ttl_ms),
        identity: "bench".into(),
        pod: None,
    }
}

/// A session with its next request number.
pub(super) struct RawSession {
    leases: LeasesClient<Channel>,
    handle: SessionHandle,
    number: u64,
}

impl RawSession {
    /// Opens a session.
    ///
    /// # Errors
    /// If it is refused or fails.
    pub(super) async fn open(channel: Channel, ttl_ms: u64) -> Result<Self, Failure> {
        let request = open_request(ttl_ms);
        let secret = request.secret.clone();
        let opened = SessionsClient::new(channel.clone())
            .open(request)
            .await?
            .into_inner();
        let handle = SessionHandle {
            session: opened.session,
            secret,
        };
        Ok(Self {
            leases: LeasesClient::new(channel),
            handle,
            number: 0,
        })
    }

    /// What proves its requests.
    pub(super) fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Acquires `name`, which is free, and returns its token.
    ///
    /// # Errors
    /// If it is refused or fails.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<u64, Failure> {
        self.request(name, None).await
    }

    /// Waits for `name` as long as the session lives, and returns its token.
    ///
    /// # Errors
    /// If it is refused or fails.
    pub(super) async fn acquire_waiting(&mut self, name: &str) -> Result<u64, Failure> {
        self.request(name, Some(TTL_MS)).await
    }

    async fn request(&mut self, name: &str, wait_ms: Option<u64>) -> Result<u64, Failure> {
        self.number += 1;
        let request = AcquireRequest {
            session: Some(self.handle.clone()),
            number: self.number,
            name: name.to_owned(),
            wait_ms,
            ..AcquireRequest::default()
        };
        let granted = self.leases.acquire(request).await?.into_inner();
        token(granted.grant)
    }

    /// Releases `name`.
    ///
    /// # Errors
    /// If it is refused or fails.
    pub(super) async fn release(&mut self, name: &str, token: u64) -> Result<(), Failure> {
        self.number += 1;
        let request = ReleaseRequest {
            session: Some(self.handle.clone()),
            number: self.number,
            lowest: 0,
            name: name.to_owned(),
            token,
            close_session: false,
        };
        self.leases.release(request).await?;
        Ok(())
    }
}

/// The token of an answer that has a grant in it.
///
/// # Errors
/// If there is none.
pub(super) fn token(grant: Option<Grant>) -> Result<u64, Failure> {
    grant.map(|grant| grant.token).ok_or_else(|| {
        Failure::new(
            exit::UNAVAILABLE,
            "FAULT",
            "the node answered an acquire without a grant",
        )
    })
}
