//! A look at a Pod: what became of it, by reads that the API server answers from its store.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::{Client, Error};
use ringfence_core::PodSeen;
use tokio::time::timeout;

use crate::limits::REQUEST_TIME_MAX;
use crate::sync_error::SyncError;

/// The taint by which people say that a node is down and stays so.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What was seen of a Pod that is over; `None` if its processes may live.
pub(super) async fn look(
    client: &Client,
    bound: &ringfence_core::Pod,
) -> Result<Option<PodSeen>, SyncError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), bound.namespace());
    let found = match within(pods.get(bound.name())).await {
        Err(error) if says_not_found(&error, bound.name()) => return Ok(Some(PodSeen::Gone)),
        found => found.map_err(|error| SyncError::of(&error, false))?,
    };
    if found.metadata.uid.as_deref() != Some(bound.uid().as_str()) {
        return Ok(Some(PodSeen::Gone));
    }
    let status = found.status.unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => return Ok(Some(PodSeen::Succeeded)),
        Some("Failed") => return Ok(Some(PodSeen::Failed)),
        _ => {}
    }
    let Some(node) = found.spec.and_then(|spec| spec.node_name) else {
        return Ok(None);
    };
    let nodes: Api<Node> = Api::all(client.clone());
    match within(nodes.get(&node)).await {
        Ok(node) => Ok(is_out_of_service(&node).then_some(PodSeen::NodeOutOfService)),
        // Without the right to read nodes, or without the node, no source has said anything of it.
        Err(Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(SyncError::of(&error, false)),
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answered = timeout(REQUEST_TIME_MAX, asked).await;
    answered.unwrap_or_else(|late| Err(Error::Service(Box::new(late))))
}

/// Whether this answer is the API server's own word that there is no such object: a 404 of anybody
/// else's on the way says nothing.
fn says_not_found(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let details = status.details.as_ref();
    status.code == 404
        && status.reason == "NotFound"
        && details.is_some_and(|details| details.kind == "pods" && details.name == name)
}

/// Whether people have said that the node is down.
pub(super) fn is_marked(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == OUT_OF_SERVICE))
}

/// Whether they have, and nothing contradicts them: a node that is ready lives, whatever was left
/// on it.
fn is_out_of_service(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|conditions| {
        let mut all = conditions.iter();
        all.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    is_marked(node) && !ready
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn answered(status: serde_json::Value) -> Error {
        Error::Api(Box::new(serde_json::from_value::<Status>(status).unwrap()))
    }

    #[test]
    fn only_the_api_server_can_say_that_a_pod_is_gone() {
        let gone = answered(json!({
            "status": "Failure", "code": 404, "reason": "NotFound", "message": "pods \"a\" not found",
            "details": {"name": "a", "kind": "pods"},
        }));
        assert!(says_not_found(&gone, "a"));
        assert!(!says_not_found(&gone, "b"));
        for other in [
            json!({"code": 404, "reason": "NotFound", "message": "404 page not found"}),
            json!({"code": 404, "reason": "", "message": "no route"}),
            json!({"code": 403, "reason": "Forbidden", "details": {"name": "a", "kind": "pods"}}),
            json!({"code": 404, "reason": "NotFound", "details": {"name": "a", "kind": "namespaces"}}),
        ] {
            assert!(!says_not_found(&answered(other.clone()), "a"), "{other}");
        }
    }

    #[test]
    fn a_node_is_out_of_service_if_people_say_so_and_it_is_not_ready() {
        let node = |taint: &str, ready: &str| {
            let node = json!({
                "metadata": {"name": "n"},
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            serde_json::from_value::<Node>(node).unwrap()
        };
        assert!(is_out_of_service(&node(OUT_OF_SERVICE, "Unknown")));
        assert!(is_out_of_service(&node(OUT_OF_SERVICE, "False")));
        assert!(!is_out_of_service(&node(OUT_OF_SERVICE, "True")));
        assert!(!is_out_of_service(&node(
            "node.kubernetes.io/unreachable",
            "Unknown"
        )));
    }
}
