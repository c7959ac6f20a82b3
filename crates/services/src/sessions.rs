//! Service `ringfence.v1.Sessions`.

use ringfence_proto::v1;
use tonic::{Request, Response, Status, Streaming};

use super::{Context, deadline, keep_alive};
use crate::caller::Who;
use crate::metrics::Call;

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
