//! What `/metrics` shows, in Prometheus' text form; every name begins with `ringfence_`.

mod certificates;
mod cluster;
mod node;
mod port;

use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use ringfence_core::{EndCause, Event};
use ringfence_raft::{Batch, Node};
use ringfence_services::Pool;
use ringfence_tls::PortFigures;

use self::port::PortCollector;
use crate::identify::IdentifyLayer;
use crate::leading::follow;
use crate::progress::Progress;

pub(crate) use self::certificates::{Certificates, validities};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

/// The counters of the ports that this process accepts at on its own; those of the peer port are
/// the node's.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) client: Arc<PortFigures>,
    pub(crate) http: Arc<PortFigures>,
    pub(crate) lease_api: Arc<PortFigures>,
    /// What the connections of clients hold.
    pub(crate) pool: Arc<Pool>,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self {
            client: Arc::default(),
            http: Arc::default(),
            lease_api: Arc::default(),
            pool: Pool::new(),
        }
    }
}

/// Shows the counters of a port of another process than a node's.
pub(crate) fn register_port(
    registry: &mut Registry,
    port: &'static str,
    figures: &Arc<PortFigures>,
) {
    let ports = vec![(port, Arc::clone(figures))];
    registry.register_collector(Box::new(PortCollector::new(ports, None)));
}

/// Counters of one node.
pub(crate) struct Metrics {
    registry: Registry,
    transitions: Family<CauseLabels, Counter>,
}

impl Metrics {
    /// The counters of the node that makes this progress, of its services and of how it proves
    /// `callers`, the ends of its certificates, and what `others` registers.
    pub(crate) fn new(
        progress: &Progress,
        services: &ringfence_services::Metrics,
        ports: &Ports,
        callers: &IdentifyLayer,
        certificates: Certificates,
        others: impl FnOnce(&mut Registry),
    ) -> Arc<Self> {
        let node = progress.node();
        let mut registry = Registry::with_prefix("ringfence");
        let transitions = Family::<CauseLabels, Counter>::default();
        services.register(&mut registry);
        registry.register(
            "lease_transitions",
            "Grants and their ends as this node applied them, by cause",
            transitions.clone(),
        );
        others(&mut registry);
        let pool = Some(ports.pool.clone());
        let ports = vec![
            ("client", ports.client.clone()),
            ("peer", node.peer_port().clone()),
            ("http", ports.http.clone()),
            ("lease-api", ports.lease_api.clone()),
        ];
        registry.register_collector(Box::new(PortCollector::new(ports, pool)));
        registry.register_collector(Box::new(node::NodeFigures::new(node.clone())));
        let member = cluster::ClusterFigures::new(progress.clone(), callers.clone(), certificates);
        registry.register_collector(Box::new(member));
        Arc::new(Self {
            registry,
            transitions,
        })
    }

    /// Everything in Prometheus' text form.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut shown = String::new();
        text::encode(&mut shown, &self.registry)?;
        Ok(shown)
    }

    /// Counts the grants and ends that `node` applies, for as long as it lives.
    pub(crate) async fn count_transitions(self: Arc<Self>, node: Node) {
        let feed = node.events();
        let from = feed.head();
        // What was missed stays uncounted; a rate over it is wrong once.
        let count = |batch: Option<&Batch>| {
            let events = batch.into_iter().flat_map(|batch| &batch.events);
            events.for_each(|(_, event)| self.count(event));
        };
        match follow(feed, from, count).await {}
    }

    fn count(&self, event: &Event) {
        let cause = match event {
            Event::Granted(_) => "granted",
            Event::Ended { cause, .. } => match cause {
                EndCause::Released => "released",
                EndCause::Expired => "expired",
                EndCause::Closed => "closed",
                EndCause::Revoked { .. } => "revoked",
                EndCause::Evicted { .. } => "evicted",
                EndCause::Transferred { .. } => "transferred",
                EndCause::PodEnded { .. } => "pod_ended",
            },
            Event::WaitEnded { .. }
            | Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::Forgotten { .. } => return,
        };
        self.transitions.get_or_create(&CauseLabels { cause }).inc();
    }
}
