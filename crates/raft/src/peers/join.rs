//! The answer to a node that wants to join the cluster.

use ringfence_core::Mode;
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;

use crate::leader::term::Route;
use crate::requests::change::{By, asked_by, change_as_leader};
use crate::shared::inner::Inner;

/// Answers a node that wants to join.
pub(crate) async fn answer_join(inner: &Inner, request: pb::JoinRequest) -> pb::JoinResponse {
    let mut answer = pb::JoinResponse::default();
    let Some(running) = inner.running.get() else {
        answer.why_not = "this node belongs to no cluster".to_owned();
        return answer;
    };
    if !matches!(&*inner.route.borrow(), Route::Leader(_)) {
        answer.why_not = "this node does not lead".to_owned();
        answer.leader_peer_address = inner.leader_peer_address().unwrap_or_default();
        return answer;
    }
    let enforced = inner.state.machine().access().mode() == Mode::Enforced;
    if enforced && !request.peer_authenticated && !planted(Bug::OpenPortJoins) {
        answer.why_not = format!(
            "rights are enforced in this cluster, and the peer port of {} is not authenticated: start \
             it with --cluster-secret-file, or with certificates and --peer-tls-name, and without \
             --peer-tls-mode permissive",
            request.name
        );
        return answer;
    }
    let member = pb::Member {
        node_id: 0,
        name: request.name,
        peer_address: request.peer_address,
        client_address: request.client_address,
        incarnation: request.incarnation,
    };
    let add = pb::change_members::Change::Add(member);
    let change = asked_by(By::Itself, add, false);
    match change_as_leader(&inner.route, inner.config.timing, change).await {
        Ok(changed) => {
            answer.node_id = changed.node_id;
            answer.cluster = running.caller.seat.cluster.as_bytes().to_vec().into();
        }
        Err(error) => answer.why_not = error.to_string(),
    }
    answer
}
