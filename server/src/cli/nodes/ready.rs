//! Waiting until a cluster serves, and asking its nodes what they know.

use std::net::SocketAddr;
use std::time::Duration;

use ringfence_core::Mode;
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{AccessMode, ListRequest, StatusRequest, StatusResponse, WhoAmIRequest};
use tonic::Code;

use super::{Node, Nodes};
use crate::cli::{Failure, exit};

/// How long a cluster may take to form.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long one question to a node may take.
const ASK_LIMIT: Duration = Duration::from_millis(500);
/// Between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_millis(50);

impl Nodes {
    /// Waits until every running node serves reads that go through the leader, and returns the
    /// leader's place.
    ///
    /// # Errors
    /// If a node ends meanwhile, or the cluster does not serve within 30 s; with what the node
    /// wrote last.
    pub(crate) async fn ready(&mut self) -> Result<usize, Failure> {
        let addresses: Vec<SocketAddr> = self
            .all()
            .iter()
            .filter(|node| node.pid().is_some())
            .map(|node| node.client)
            .collect();
        let access = self.awaited;
        let ended = tokio::select! {
            biased;
            ended = self.one_ended() => Some(ended),
            served = tokio::time::timeout(READY_LIMIT, all_serve(&addresses, access)) => match served {
                Ok(()) => None,
                Err(_) => return Err(self.not_ready()),
            },
        };
        if let Some((place, ended)) = ended {
            let node = &self.all()[place];
            let message = format!("node {} {ended}:{}", node.name, node.last_words());
            return Err(Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
                .hint("the last lines of its log, above, say why"));
        }
        self.leader().await.ok_or_else(|| self.not_ready())
    }

    /// The place of the node that leads, as most recently known to the nodes themselves.
    pub(crate) async fn leader(&self) -> Option<usize> {
        let mut newest = None;
        for node in self.all().iter().filter(|node| node.pid().is_some()) {
            let Some(status) = status(node.client).await else {
                continue;
            };
            if status.leader_id != 0 && newest.as_ref().is_none_or(|(term, _)| *term < status.term)
            {
                newest = Some((status.term, status.leader_client_address));
            }
        }
        let (_, address) = newest?;
        let leads = |node: &Node| node.client.to_string() == address && node.pid().is_some();
        self.all().iter().position(leads)
    }

    fn not_ready(&self) -> Failure {
        let words: String = self.all().iter().map(Node::last_words).collect();
        let limit = READY_LIMIT.as_secs();
        let message = format!("the nodes did not form a cluster within {limit} s:{words}");
        Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
            .hint("look at the logs above; a busy machine may need another try")
    }
}

/// What a node knows, if it answers soon.
pub(crate) async fn status(client: SocketAddr) -> Option<StatusResponse> {
    let ask = async {
        let mut cluster = ClusterClient::connect(format!("http://{client}"))
            .await
            .ok()?;
        cluster.status(StatusRequest {}).await.ok()
    };
    tokio::time::timeout(ASK_LIMIT, ask)
        .await
        .ok()
        .flatten()
        .map(tonic::Response::into_inner)
}

async fn all_serve(clients: &[SocketAddr], access: Mode) {
    for client in clients {
        while !(serves(*client).await && has_mode(*client, access).await) {
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}

async fn serves(client: SocketAddr) -> bool {
    let ask = async {
        let mut leases = LeasesClient::connect(format!("http://{client}"))
            .await
            .ok()?;
        let listed = leases
            .list(ListRequest {
                page_size: 1,
                ..ListRequest::default()
            })
            .await;
        match listed {
            Ok(_) => Some(()),
            // It was judged by the newest state.
            Err(status) => (status.code() == Code::PermissionDenied).then_some(()),
        }
    };
    tokio::time::timeout(ASK_LIMIT, ask)
        .await
        .ok()
        .flatten()
        .is_some()
}

/// Whether a node knows that rights bind as they shall; a later change of the mode is not waited for.
async fn has_mode(client: SocketAddr, access: Mode) -> bool {
    if access == Mode::Off {
        return true;
    }
    let ask = async {
        let channel = AccessClient::connect(format!("http://{client}")).await;
        let me = channel.ok()?.who_am_i(WhoAmIRequest {}).await.ok()?;
        Some(me.into_inner().mode() != AccessMode::Off)
    };
    let asked = tokio::time::timeout(ASK_LIMIT, ask).await;
    asked.ok().flatten() == Some(true)
}
