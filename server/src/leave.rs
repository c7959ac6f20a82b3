//! How a node that Kubernetes has scaled away takes leave: it gives its seat up before it stops,
//! and clears its directory, which is worth nothing after that.
//!
//! A Pod is stopped for many reasons, and only one of them is for good: that its StatefulSet has
//! fewer replicas than the Pod's number. So that is what is asked, and in doubt the seat is kept.

use http::Request;
use ringfence_kube::Client;
use ringfence_raft::Node;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::limits::LEAVE_MAX;
use crate::standing::Standing;

/// The place of a Pod in its StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ordinal {
    set: String,
    number: u64,
}

impl Ordinal {
    /// Of a Pod with this name; `None` if no StatefulSet has made it.
    pub(crate) fn of(pod: &str) -> Option<Self> {
        let (set, number) = pod.rsplit_once('-')?;
        let canonical = number.parse::<u64>().ok()?;
        (!set.is_empty() && canonical.to_string() == number).then(|| Self {
            set: set.to_owned(),
            number: canonical,
        })
    }

    /// Whether so many replicas are too few for this Pod. None at all is a pause of the whole
    /// cluster: it is to come back as it was.
    fn is_beyond(&self, replicas: u64) -> bool {
        replicas > 0 && self.number >= replicas
    }
}

/// Gives up the seat of `node` if its StatefulSet is scaled so that it has none; says whether it
/// did. It takes [`LEAVE_MAX`] at most.
pub(crate) async fn leave_if_scaled_away(node: &Node, client: Client, pod: &Ordinal) -> bool {
    match timeout(LEAVE_MAX, leave(node, client, pod)).await {
        Ok(Ok(left)) => left,
        Ok(Err(why)) => {
            warn!("this node keeps its seat: {why}");
            false
        }
        Err(_) => {
            warn!(
                "this node keeps its seat: giving it up took too long; if it is not to come back, \
                 run `ringfence cluster remove {}-{}`",
                pod.set, pod.number
            );
            false
        }
    }
}

async fn leave(node: &Node, client: Client, pod: &Ordinal) -> Result<bool, String> {
    let replicas = replicas(client, &pod.set).await?;
    if !pod.is_beyond(replicas) {
        return Ok(false);
    }
    let node_id = match Standing::of(node) {
        Standing::None => return Ok(false),
        Standing::Learner(node_id) | Standing::Bereft { node_id, .. } => node_id,
        Standing::Voter => node.status().node_id.unwrap_or_default(),
    };
    let removed = node.remove_member(node_id).await;
    removed.map_err(|error| {
        format!("its StatefulSet has {replicas} replicas, and yet it cannot leave: {error}")
    })?;
    info!(node_id, replicas, "this node has left its cluster");
    Ok(true)
}

/// How many replicas a StatefulSet of this namespace is to have.
async fn replicas(client: Client, set: &str) -> Result<u64, String> {
    let namespace = client.default_namespace();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{set}/scale");
    let asked = Request::get(&path).body(Vec::new());
    let asked = asked.map_err(|error| format!("{path}: {error}"))?;
    let scale: Value = client
        .request(asked)
        .await
        .map_err(|error| format!("cannot ask how many replicas there are to be: {error}"))?;
    // Kubernetes leaves a 0 out.
    Ok(scale["spec"]["replicas"].as_u64().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_a_stateful_set_knows_its_number() {
        let third = Ordinal::of("ringfence-eu-3").unwrap();
        assert_eq!((third.set.as_str(), third.number), ("ringfence-eu", 3));
        for other in [
            "n1",
            "ringfence",
            "ringfence-",
            "-3",
            "ringfence-03",
            "a-+3",
        ] {
            assert_eq!(Ordinal::of(other), None, "{other}");
        }
    }

    #[test]
    fn the_highest_numbers_leave_and_a_pause_is_no_farewell() {
        let third = Ordinal::of("ringfence-3").unwrap();
        assert!(third.is_beyond(3) && third.is_beyond(1));
        assert!(!third.is_beyond(4) && !third.is_beyond(5));
        assert!(!third.is_beyond(0));
    }
}
