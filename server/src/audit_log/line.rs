//! What an audit log is made of: lines, and what is done once they are written.

use ringfence_access::now_unix;
use ringfence_core::{AUDIT_RECORDS_MAX, AuditRecord, ClusterId};
use ringfence_proto::wire;
use ringfence_services::RefusalCounts;
use serde_json::{Value, json};

use super::position::Position;
use crate::acts;

/// One line.
pub(super) struct Line {
    object: Value,
    /// The act that it shows.
    pub(super) act: Option<Position>,
    /// How many refusals it counts.
    pub(super) refusals: u64,
}

impl Line {
    /// The line with its end.
    pub(super) fn text(&self) -> String {
        format!("{}\n", self.object)
    }

    /// A line of this node.
    fn of(node: u64, mut object: Value) -> Self {
        if let Value::Object(fields) = &mut object {
            fields.insert("node".to_owned(), node.into());
        }
        Self {
            object,
            act: None,
            refusals: 0,
        }
    }

    /// An act that this node has applied.
    pub(super) fn act(record: &AuditRecord, cluster: Option<ClusterId>, node: u64) -> Self {
        let index = record.index;
        let cluster_text = acts::text_of(cluster);
        Self {
            act: Some(Position::new(cluster_text, index)),
            ..Self::of(node, acts::act(cluster, &wire::act_to_wire(record)))
        }
    }

    /// Acts between two indices may be gone: said where they would stand.
    pub(super) fn missed(cluster: Option<ClusterId>, after: u64, before: u64, node: u64) -> Self {
        let mut object = acts::missed(cluster, after, before);
        object["why"] = format!("the cluster keeps {AUDIT_RECORDS_MAX} acts").into();
        object["at_unix_ms"] = now_unix().saturating_mul(1_000).into();
        Self::of(node, object)
    }

    /// A line for each kind of refusal, and one for all that were not counted apart or not written.
    pub(super) fn refused(
        counts: &RefusalCounts,
        unwritten: u64,
        node: u64,
    ) -> impl Iterator<Item = Self> {
        let at = now_unix().saturating_mul(1_000);
        let counted = move |object: Value, count: u64| {
            let mut line = Self::of(node, object);
            line.object["kind"] = "REFUSED".into();
            line.object["count"] = count.into();
            line.object["at_unix_ms"] = at.into();
            line.refusals = count;
            line
        };
        let apart = counts.apart.iter().map(move |(refused, count)| {
            let object = json!({
                "reason": refused.reason,
                "what": refused.what,
                "principal": (!refused.principal.is_empty()).then_some(&refused.principal),
                "source": (!refused.source.is_empty()).then_some(&refused.source),
                "enforced": refused.enforced,
            });
            counted(object, *count)
        });
        let others = counts.others.saturating_add(unwritten);
        let others = (others > 0).then(|| counted(json!({ "reason": "other" }), others));
        apart.chain(others)
    }
}
