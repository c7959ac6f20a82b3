//! Watches that say where to look: one for each namespace with a bound Pod, and one for nodes.

use std::fmt::Debug;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::figures::{Figures, Watched};
use super::look::is_marked;
use crate::clock::backoff;
use crate::limits::{PAUSE_MAX, PAUSE_MIN, REQUEST_TIME_MAX, WATCH_SECONDS, WATCH_SILENCE_MAX};
use crate::sync_error::SyncError;

/// Which Pods may have ended and should be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// At all Pods of a namespace: a watch has begun behind this moment, and the past is unknown.
    Namespace(String),
    /// One Pod, by name.
    Pod {
        /// Namespace of the Pod.
        namespace: String,
        /// Name of the Pod.
        name: String,
    },
    /// At all of them: something has changed on a node, or is unknown about nodes.
    All,
}

/// Runs a watch until it is dropped.
pub(super) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Watches the Pods of a namespace.
pub(super) fn pods(
    tasks: &mut JoinSet<()>,
    client: &Client,
    figures: Figures,
    namespace: &str,
    tell: mpsc::Sender<Hint>,
) -> Watch {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let begun = Hint::Namespace(namespace.to_owned());
    let hint = |pod: &Pod, gone: bool| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let over = gone || matches!(phase, Some("Succeeded" | "Failed"));
        over.then(|| Hint::Pod {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
        })
    };
    let kept = Kept {
        figures,
        of: Watched::Pods,
        tell,
    };
    Watch(tasks.spawn(watch(api, begun, hint, kept)))
}

/// Watches all nodes, for those that are marked as out of service.
pub(super) fn nodes(
    tasks: &mut JoinSet<()>,
    client: &Client,
    figures: Figures,
    tell: mpsc::Sender<Hint>,
) -> Watch {
    let api: Api<Node> = Api::all(client.clone());
    let kept = Kept {
        figures,
        of: Watched::Nodes,
        tell,
    };
    Watch(tasks.spawn(watch(api, Hint::All, of_node, kept)))
}

/// Nodes are cordoned, under pressure, starting: nothing of that says anything about a Pod.
fn of_node(node: &Node, _gone: bool) -> Option<Hint> {
    is_marked(node).then_some(Hint::All)
}

/// Who hears of a watch.
struct Kept {
    figures: Figures,
    of: Watched,
    tell: mpsc::Sender<Hint>,
}

/// Watches for ever; after trouble from the beginning.
async fn watch<K>(api: Api<K>, begun: Hint, hint: impl Fn(&K, bool) -> Option<Hint>, kept: Kept)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut troubles = 0;
    loop {
        let Err(trouble) = follow(&api, &begun, &hint, &kept, &mut troubles).await else {
            return;
        };
        if troubles == 0 {
            tracing::warn!(%trouble, "a watch of Pods or nodes has ended; it is restarted");
        }
        tokio::time::sleep(backoff(troubles, PAUSE_MIN, PAUSE_MAX)).await;
        kept.figures.restarted(kept.of);
        troubles += 1;
    }
}

/// Until there is trouble, or no task listens any more.
async fn follow<K>(
    api: &Api<K>,
    begun: &Hint,
    hint: &impl Fn(&K, bool) -> Option<Hint>,
    kept: &Kept,
    troubles: &mut u32,
) -> Result<(), SyncError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let silent = || SyncError::Away(format!("no answer within {} s", REQUEST_TIME_MAX.as_secs()));
    // For the version alone: what is concluded is read one by one.
    let first = ListParams::default().limit(1);
    let listed = timeout(REQUEST_TIME_MAX, api.list_metadata(&first)).await;
    let listed = listed.map_err(|_| silent())?;
    let listed = listed.map_err(|error| SyncError::of(&error, false))?;
    let mut version = listed.metadata.resource_version.unwrap_or_default();
    if kept.tell.send(begun.clone()).await.is_err() {
        return Ok(());
    }
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let mut open = None;
    loop {
        let watched = timeout(REQUEST_TIME_MAX, api.watch(&params, &version)).await;
        let watched = watched.map_err(|_| silent())?;
        let mut events = watched
            .map_err(|error| SyncError::of(&error, false))?
            .boxed();
        *troubles = 0;
        open.get_or_insert_with(|| kept.figures.open());
        loop {
            let event = timeout(WATCH_SILENCE_MAX, events.next()).await;
            let event = match event.map_err(|_| silent())? {
                None => break,
                Some(event) => event.map_err(|error| SyncError::of(&error, false))?,
            };
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(SyncError::of(&kube::Error::Api(status), false));
                }
            };
            version = object.resource_version().unwrap_or(version);
            if let Some(hint) = hint(&object, gone)
                && kept.tell.send(hint).await.is_err()
            {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_node_that_people_have_given_up_is_a_reason_to_look_at_all_pods() {
        let tainted = |taint: &str| {
            let node = json!({
                "metadata": {"name": "n"},
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            });
            serde_json::from_value::<Node>(node).unwrap()
        };
        let given_up = tainted("node.kubernetes.io/out-of-service");
        assert_eq!(of_node(&given_up, false), Some(Hint::All));
        for other in ["node.kubernetes.io/unschedulable", "dedicated"] {
            assert_eq!(of_node(&tainted(other), false), None, "{other}");
        }
        assert_eq!(of_node(&Node::default(), false), None);
    }
}
