//! What is applied, and the Pods that come of it.

use std::fs;

use serde_json::Value;

use crate::cluster::{Cluster, LONG, is_ready};
use crate::program::until;

/// Applies what a command of ours prints in a Pod.
pub(super) fn apply(cluster: &Cluster, pod: &str, line: &str) -> Result<(), String> {
    apply_text(cluster, &cluster.ringfence(pod, line)?)
}

pub(super) fn apply_text(cluster: &Cluster, text: &str) -> Result<(), String> {
    let file = cluster.folder().join("applied.yaml");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let apply = format!("apply --filename={}", file.display());
    cluster.kubectl.run(&apply).map(drop)
}

pub(super) fn pods(cluster: &Cluster, of: (&str, &str, u16)) -> Result<Vec<Value>, String> {
    let (namespace, name, _) = of;
    let those = format!("pods --namespace={namespace} --selector=app.kubernetes.io/name={name}");
    let list = cluster.kubectl.get(&those)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

pub(super) fn ready(cluster: &Cluster, of: (&str, &str, u16), count: usize) -> Result<(), String> {
    until(&format!("{} is ready", of.1), LONG, || {
        let pods = pods(cluster, of)?;
        let ready = pods.len() == count && pods.iter().all(is_ready);
        ready.then_some(()).ok_or_else(|| format!("{pods:?}"))
    })
}
