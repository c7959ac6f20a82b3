//! Service `ringfence.v1.Sessions`.

use std::time::Duration;

use ringfence_core::SessionId;
use ringfence_proto::{Refusal, v1};
use tonic::{Request, Response, Status, Streaming};

use super::{Context, deadline, keep_alive};
use crate::caller::Who;
use crate::metrics::Call;
use crate::status::not_read;

/// Service `ringfence.v1.Sessions`.
pub struct SessionService {
    context: Context,
}

impl SessionService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }
}

impl SessionService {
    /// One message of keep-alives and its answer, for callers without a stream; and the TTL of the
    /// first session that it names, `None` if that has ended. Look at the answer first: only for a
    /// session that it does not list as ended was the caller proven.
    ///
    /// # Errors
    /// A status with a refusal, if nothing of it was acknowledged.
    pub async fn keep_alive_once(
        &self,
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<(v1::KeepAliveResponse, Option<Duration>), Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let request = request.into_inner();
        let session = request.sessions.first().map_or(0, |first| first.session);
        let answer = keep_alive::once(&self.context, &account, &who, request).await?;
        Ok((answer, self.ttl(session).await?))
    }

    /// The TTL of a session whose owner asks; `None` if it has ended.
    async fn ttl(&self, session: u64) -> Result<Option<Duration>, Refusal> {
        let Some(session) = SessionId::new(session) else {
            return Ok(None);
        };
        let node = &self.context.node;
        let look = || node.read(|machine| machine.session(session).map(|view| view.ttl));
        if let Some(ttl) = look() {
            return Ok(Some(Duration::from_millis(ttl.0)));
        }
        // It was opened at another node a moment ago, perhaps.
        node.read_barrier().await.map_err(not_read)?;
        Ok(look().map(|ttl| Duration::from_millis(ttl.0)))
    }
}

#[tonic::async_trait]
impl v1::sessions_server::Sessions for SessionService {
    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::OpenResponse>, Status> {
        self.context.call(request).await
    }

    type KeepAliveStream = keep_alive::KeepAliveStream;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Result<Response<Self::KeepAliveStream>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let admitted = self.context.admit(&who);
        self.context.answered(Call::KeepAlive, admitted)?;
        let incoming = request.into_inner();
        let answers = keep_alive::serve(self.context.clone(), account, who, incoming);
        Ok(Response::new(answers))
    }

    async fn close(
        &self,
        request: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        self.context.call(request).await
    }

    async fn evict(
        &self,
        request: Request<v1::EvictRequest>,
    ) -> Result<Response<v1::EvictResponse>, Status> {
        self.context.call(request).await
    }

    async fn get(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        self.context.query(request).await
    }

    async fn list(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        let work = self.context.list_sessions(&account, &who, request);
        let answer = deadline::within(&metadata, work).await;
        let answer = self.context.answered(Call::ListSessions, answer);
        Ok(answer?.response())
    }
}
