//! Asking other nodes who they are, before there is a cluster.

use std::time::Duration;

use bytes::Bytes;
use ringfence_proto::raft as pb;
use ringfence_tls::Connector;

use crate::network::connect;
use crate::shared::inner::Inner;

/// How long a node is given to say who it is.
const HELLO_MAX: Duration = Duration::from_millis(500);

/// The names and addresses of the first members, sorted by name.
pub(crate) fn first_members(inner: &Inner) -> Vec<(String, String)> {
    let mut members = inner.config.initial_cluster.clone();
    members.sort();
    members
}

/// What this node connects to others with, if there is TLS between them.
pub(crate) fn tls_of(inner: &Inner) -> Option<&Connector> {
    Some(&inner.config.peer_tls.as_ref()?.connect)
}

/// The clusters that this node's cluster was restored from, as a message carries them.
pub(crate) fn lineage_of(inner: &Inner) -> Vec<Bytes> {
    let machine = inner.state.machine();
    let lineage = machine.lineage().iter();
    lineage
        .map(|cluster| Bytes::copy_from_slice(cluster.as_bytes()))
        .collect()
}

/// What the node at this address says of itself; `None` if none says so in time.
pub(crate) async fn hello(inner: &Inner, address: &str) -> Option<pb::HelloResponse> {
    let mut client = connect(address, tls_of(inner))?;
    let request = pb::HelloRequest {
        name: inner.config.name.clone(),
        incarnation: Bytes::copy_from_slice(inner.incarnation.as_bytes()),
        lineage: lineage_of(inner),
        ..pb::HelloRequest::default()
    };
    let answer = tokio::time::timeout(HELLO_MAX, client.hello(request)).await;
    Some(answer.ok()?.ok()?.into_inner())
}

/// What a node said of itself, and between which readings of this node's wall clock.
pub(crate) struct Asked {
    pub(crate) answer: pb::HelloResponse,
    before: u64,
    after: u64,
}

impl Asked {
    /// What the node at this address says; `None` if none says anything in time.
    pub(crate) async fn at(inner: &Inner, address: &str) -> Option<Self> {
        let wall = inner.config.hooks.wall_millis;
        let before = wall();
        let answer = hello(inner, address).await?;
        let after = wall();
        Some(Self {
            answer,
            before,
            after,
        })
    }

    /// How far the node's clock is from this one's at least; `None` if it does not show its clock, as
    /// in older releases.
    pub(crate) fn apart(&self) -> Option<Duration> {
        let shown = Some(self.answer.wall).filter(|shown| *shown > 0)?;
        let early = self.before.saturating_sub(shown);
        let late = shown.saturating_sub(self.after);
        Some(Duration::from_millis(early.max(late)))
    }
}
