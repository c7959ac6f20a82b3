//! The cluster that a call is meant for, if its caller says so.
//!
//! A restored cluster stands at the addresses of the one before it. What a caller has of that one, a
//! session's handle or what an administrator saw, means something else here or nothing: the call is
//! refused, and changes nothing. A node belongs to one cluster for its whole life, so the node that
//! takes a call knows.

use ringfence_planted::{Bug, planted};
use ringfence_proto::Refusal;
use ringfence_proto::text::from_hex;
use ringfence_proto::v1::Reason;
use tonic::metadata::MetadataMap;

use crate::Context;
use crate::status::RETRY_AFTER;

/// The header of a call that names its cluster: 32 hexadecimal digits. A call without it is meant for
/// whichever cluster takes it.
pub const CLUSTER_HEADER: &str = "ringfence-cluster";

impl Context {
    /// Refuses a call that is meant for another cluster.
    pub(crate) fn is_meant(&self, metadata: &MetadataMap) -> Result<(), Refusal> {
        let Some(offered) = metadata.get(CLUSTER_HEADER) else {
            return Ok(());
        };
        let allowed = "the 32 hexadecimal digits of a cluster's id, or no such header";
        let text = offered.to_str().ok();
        let bytes = text.and_then(from_hex).filter(|bytes| bytes.len() == 16);
        let (Some(text), Some(bytes)) = (text, bytes) else {
            return Err(Refusal::invalid(CLUSTER_HEADER, "something else", allowed));
        };
        let Some(own) = self.node.read(|machine| machine.cluster()) else {
            let why = "this node belongs to no cluster yet, so it cannot say whether the call is meant \
                       for its own";
            return Err(Refusal::unavailable(why, None, RETRY_AFTER));
        };
        if own.as_bytes()[..] == bytes[..] || planted(Bug::OtherClustersCallTaken) {
            return Ok(());
        }
        let message = format!(
            "the call is meant for cluster {text}, and this is cluster {own}: it was restored or formed \
             since; nothing was done. Leave out --cluster, or name this cluster: {own}"
        );
        let refusal = Refusal::new(Reason::ClusterChanged, message);
        Err(refusal.with("offered", text).with("present", own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::alone;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_is_taken_by_the_cluster_that_it_names_and_by_no_other() {
        let alone = alone().await;
        let own = alone.node.read(|machine| machine.cluster()).unwrap();
        let named = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(CLUSTER_HEADER, text.parse().unwrap());
            alone.context.is_meant(&metadata).map_err(|why| why.reason)
        };
        assert_eq!(alone.context.is_meant(&MetadataMap::new()), Ok(()));
        assert_eq!(named(&own.to_string()), Ok(()));
        assert_eq!(named(&"0".repeat(32)), Err(Reason::ClusterChanged));
        for other in ["", "7", "the cluster"] {
            assert_eq!(named(other), Err(Reason::InvalidArgument), "{other}");
        }
    }
}
