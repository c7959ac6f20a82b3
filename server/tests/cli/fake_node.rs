//! A node that says of itself what a test wants: an older release, or one that is not to be trusted.

use std::net::SocketAddr;
use std::thread;

use ringfence_proto::v1;
use ringfence_proto::v1::cluster_server::{Cluster, ClusterServer};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What it says.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeNode {
    pub(crate) status: v1::StatusResponse,
    pub(crate) members: Vec<v1::Member>,
    /// The date in the heads of its answers; empty: the right one.
    pub(crate) date: String,
}

/// Serves for as long as it lives.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl FakeNode {
    /// One with this number and name.
    pub(crate) fn new(node_id: u64, name: &str) -> Self {
        let status = v1::StatusResponse {
            cluster_id: vec![7; 16].into(),
            node_id,
            name: name.to_owned(),
            leader_id: 1,
            role: "follower".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        Self {
            status,
            ..Self::default()
        }
    }

    pub(crate) fn serve(self) -> Serving {
        let (told, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let incoming = TcpListenerStream::new(listener);
                let server = Server::builder().add_service(ClusterServer::new(self));
                let served = server.serve_with_incoming_shutdown(incoming, async {
                    stopped.await.ok();
                });
                served.await.unwrap();
            });
        });
        Serving {
            address: address.recv().unwrap(),
            _stop: stop,
        }
    }

    fn answer<T>(&self, said: T) -> Response<T> {
        let mut response = Response::new(said);
        if !self.date.is_empty() {
            let date = self.date.parse().unwrap();
            response.metadata_mut().insert("date", date);
        }
        response
    }
}

type Answered<T> = Result<Response<T>, Status>;

fn unasked<T>() -> Answered<T> {
    Err(Status::unimplemented("no test asks for it"))
}

#[tonic::async_trait]
impl Cluster for FakeNode {
    type BackupStream = tokio_stream::Empty<Result<v1::BackupResponse, Status>>;

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answered<v1::StatusResponse> {
        Ok(self.answer(self.status.clone()))
    }

    async fn list_members(
        &self,
        _: Request<v1::ListMembersRequest>,
    ) -> Answered<v1::ListMembersResponse> {
        Ok(self.answer(v1::ListMembersResponse {
            members: self.members.clone(),
            changing: false,
        }))
    }

    async fn add_member(
        &self,
        _: Request<v1::AddMemberRequest>,
    ) -> Answered<v1::AddMemberResponse> {
        unasked()
    }

    async fn promote_member(
        &self,
        _: Request<v1::PromoteMemberRequest>,
    ) -> Answered<v1::PromoteMemberResponse> {
        unasked()
    }

    async fn remove_member(
        &self,
        _: Request<v1::RemoveMemberRequest>,
    ) -> Answered<v1::RemoveMemberResponse> {
        unasked()
    }

    async fn transfer_leader(
        &self,
        _: Request<v1::TransferLeaderRequest>,
    ) -> Answered<v1::TransferLeaderResponse> {
        unasked()
    }

    async fn configure(&self, _: Request<v1::ConfigureRequest>) -> Answered<v1::ConfigureResponse> {
        unasked()
    }

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Answered<Self::BackupStream> {
        unasked()
    }
}
