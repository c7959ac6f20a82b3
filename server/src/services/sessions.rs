//! Service `ringfence.v1.Sessions`.

use ringfence_proto::v1;
use tonic::{Request, Response, Status, Streaming};

use super::{Context, keep_alive};

/// Service `ringfence.v1.Sessions`.
pub(crate) struct SessionService {
    context: Context,
}

impl SessionService {
    /// The service of this node.
    pub(crate) fn new(context: Context) -> Self {
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
        Ok(Response::new(keep_alive::serve(
            self.context.clone(),
            request.into_inner(),
        )))
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
        self.context.query(request).await
    }
}
