//! What a node of the fake cluster serves over gRPC.

use std::sync::Arc;

use ringfence_proto::Refusal;
use ringfence_proto::v1::connection_server::Connection;
use ringfence_proto::v1::leases_server::Leases;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::sessions_server::Sessions;
use ringfence_proto::v1::{
    self, ClientMessage, GetSessionRequest, GetSessionResponse, Greeting, Reason, ServerFrame,
    ServerMessage,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::{Inner, send};

pub(super) struct Service(pub(super) Arc<Inner>);

#[tonic::async_trait]
impl Connection for Service {
    type StreamStream = UnboundedReceiverStream<Result<ServerMessage, Status>>;

    async fn stream(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (out, replies) = mpsc::unbounded_channel();
        let greeting = Greeting {
            cluster_id: self.0.cluster_id.clone().into(),
            node_id: 1,
            cluster_time_ms: 1,
            leader_id: 1,
            leader_client_address: self.0.cluster.shared.leader.lock().unwrap().clone(),
            term: 1,
        };
        send(
            &out,
            ServerFrame {
                id: 0,
                body: Some(Reply::Greeting(greeting)),
            },
        );
        self.0.streams.lock().unwrap().push(out.clone());
        let mut inbound = request.into_inner();
        let this = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                for frame in message.frames {
                    if !this.receive(frame, &out) {
                        out.send(Err(Status::unavailable("broken"))).ok();
                        return;
                    }
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(replies)))
    }
}

#[tonic::async_trait]
impl Sessions for Service {
    type KeepAliveStream = ReceiverStream<Result<v1::KeepAliveResponse, Status>>;

    async fn get(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let number = request.into_inner().session;
        let model = self.0.cluster.model();
        let Some(session) = model.sessions.get(&number) else {
            return Err(Refusal::new(Reason::NotFound, "there is no such session").into());
        };
        let session = v1::Session {
            session: number,
            ttl_ms: session.ttl_ms,
            ..v1::Session::default()
        };
        Ok(Response::new(GetSessionResponse {
            session: Some(session),
            at: None,
        }))
    }

    async fn open(
        &self,
        _: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::OpenResponse>, Status> {
        Err(Status::unimplemented("use the stream"))
    }

    async fn keep_alive(
        &self,
        _: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Result<Response<Self::KeepAliveStream>, Status> {
        Err(Status::unimplemented("use the stream"))
    }

    async fn close(
        &self,
        _: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        Err(Status::unimplemented("use the stream"))
    }

    async fn evict(
        &self,
        _: Request<v1::EvictRequest>,
    ) -> Result<Response<v1::EvictResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list(
        &self,
        _: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        // Broken connections look like this to a caller: no details of ours.
        Err(Status::unavailable("connection reset"))
    }
}

#[tonic::async_trait]
impl Leases for Service {
    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;
    type WatchFloorsStream = ReceiverStream<Result<v1::WatchFloorsResponse, Status>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        self.0.watches.lock().unwrap().push(request.prefix.clone());
        let watching = *self.0.watching.lock().unwrap();
        let Some(watching) = watching else {
            return Err(Status::unimplemented("not scripted"));
        };
        let (out, told) = mpsc::channel(16);
        self.0.watchers.lock().unwrap().push(out.clone());
        tokio::spawn(async move {
            for message in watching(&request) {
                if out.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            // As the server does, which says something at least every second.
            loop {
                let reached = v1::Position {
                    cluster_id: vec![7; 16].into(),
                    index: 9,
                    n: u32::MAX,
                    term: 1,
                };
                let message = v1::WatchResponse {
                    position: Some(reached),
                    ..v1::WatchResponse::default()
                };
                if out.send(Ok(message)).await.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn watch_floors(
        &self,
        _: Request<v1::WatchFloorsRequest>,
    ) -> Result<Response<Self::WatchFloorsStream>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn acquire(
        &self,
        _: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn cancel(
        &self,
        _: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn release(
        &self,
        _: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn transfer(
        &self,
        _: Request<v1::TransferRequest>,
    ) -> Result<Response<v1::TransferResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn revoke(
        &self,
        _: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list(
        &self,
        _: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn check(
        &self,
        _: Request<v1::CheckRequest>,
    ) -> Result<Response<v1::CheckResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn history(
        &self,
        _: Request<v1::HistoryRequest>,
    ) -> Result<Response<v1::HistoryResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}
