//! The calls of etcd that a guard needs.

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::messages::{KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use super::{EtcdError, Txn};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
/// The header in which etcd expects the token of a user.
const TOKEN: &str = "token";

/// A way to etcd over a channel of `tonic`, which a program shares with its own etcd client. Cloning is
/// cheap.
///
/// A call without a timeout waits for as long as the connection lasts, and for one that is being made: set
/// [`Endpoint::timeout`](tonic::transport::Endpoint::timeout) and
/// [`Endpoint::connect_timeout`](tonic::transport::Endpoint::connect_timeout), some seconds each. TLS and the choice among
/// members are the channel's as well.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    channel: Channel,
    token: Option<AsciiMetadataValue>,
}

impl EtcdClient {
    /// A client over this channel. Nothing is sent yet.
    #[must_use]
    pub const fn new(channel: Channel) -> Self {
        Self {
            channel,
            token: None,
        }
    }

    /// Shows `token` with each call: what `Auth.Authenticate` of etcd returned to the program's own client.
    /// When etcd no longer accepts it, every call is [`EtcdError::Server`]; set a new one then.
    ///
    /// # Errors
    /// [`EtcdError::InvalidToken`] if it has characters other than visible ASCII.
    pub fn with_token(mut self, token: &str) -> Result<Self, EtcdError> {
        let mut value: AsciiMetadataValue = token.parse().map_err(|_| EtcdError::InvalidToken)?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    /// The value of `key`, by a linearizable read; `None` if there is none. A holder that builds a write
    /// on it calls [`EtcdGuard::advance`](super::EtcdGuard::advance) before.
    ///
    /// # Errors
    /// [`EtcdError::Server`] or [`EtcdError::Unknown`].
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, EtcdError> {
        let found = self.look(key.as_ref()).await?;
        Ok(found.map(|found| found.value))
    }

    pub(super) async fn look(&mut self, key: &[u8]) -> Result<Option<KeyValue>, EtcdError> {
        let request = RangeRequest {
            key: key.to_vec(),
            range_end: Vec::new(),
        };
        let answer: RangeResponse = self.call(RANGE, request).await?;
        Ok(answer.kvs.into_iter().next())
    }

    /// Carries out a transaction as a program does that has no guard: for tests, which write marks so.
    #[doc(hidden)]
    pub async fn past_the_guard(&mut self, txn: Txn) -> Result<(), EtcdError> {
        self.txn(txn.into_message()).await.map(drop)
    }

    pub(super) async fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.call(TXN, request).await
    }

    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, EtcdError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        let ready = grpc.ready().await;
        // A channel that is not ready has sent nothing, but says no more than a broken call does.
        ready.map_err(|cause| Status::unavailable(cause.to_string()))?;
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec);
        Ok(answer.await?.into_inner())
    }
}
