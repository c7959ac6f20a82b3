//! Acts of operators as objects of JSON: `ringfence audit --json` and `serve --audit-log` write the same.

use ringfence_core::ClusterId;
use ringfence_proto::v1::Act;
use serde_json::{Value, json};

/// The kind of an object that is an act.
pub(crate) const ACT: &str = "ACT";

/// An act of this cluster. `proven_by` is the node that proved the principal.
pub(crate) fn act(cluster: Option<ClusterId>, act: &Act) -> Value {
    json!({
        "kind": ACT,
        "cluster": text_of(cluster),
        "index": act.index,
        "at_unix_ms": act.at_unix_ms,
        "principal": (!act.principal.is_empty()).then_some(&act.principal),
        "proven_by": (act.node_id != 0).then_some(act.node_id),
        "act": act.act,
        "reason": act.reason,
    })
}

/// Acts of this cluster between two indices may be gone: said where they would stand.
pub(crate) fn missed(cluster: Option<ClusterId>, after: u64, before: u64) -> Value {
    json!({
        "kind": "MISSED",
        "cluster": text_of(cluster),
        "after": after,
        "before": before,
    })
}

/// A cluster as text, empty for none.
pub(crate) fn text_of(cluster: Option<ClusterId>) -> String {
    cluster.map_or_else(String::new, |cluster| cluster.to_string())
}
