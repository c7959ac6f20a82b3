//! What is read from the node at the moment somebody asks.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ringfence_raft::Node;

/// Figures of a node and its state.
pub(super) struct NodeFigures {
    node: Node,
}

impl NodeFigures {
    /// Figures of `node`.
    pub(super) fn new(node: Node) -> Self {
        Self { node }
    }
}

impl fmt::Debug for NodeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeFigures")
    }
}

/// Writes figures one by one.
struct Figures<'a>(DescriptorEncoder<'a>);

impl Figures<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.write(name, help, &ConstGauge::new(value))
    }

    fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.write(name, help, &ConstGauge::new(value))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.write(name, help, &ConstCounter::new(value))
    }

    fn write(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        let encoder = self
            .0
            .encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(encoder)
    }
}

impl Collector for NodeFigures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut figures = Figures(encoder);
        let summary = self.node.read(ringfence_core::StateMachine::summary);
        figures.gauge("sessions", "Living sessions", summary.sessions)?;
        figures.gauge("leases", "Remembered lease names", summary.leases)?;
        figures.gauge("leases_held", "Leases that are held", summary.held)?;
        figures.gauge(
            "queue_length",
            "Requests that wait, in all queues",
            summary.waiters,
        )?;
        figures.gauge(
            "lease_token",
            "The greatest token granted",
            summary.last_token,
        )?;
        figures.gauge("cluster_time_ms", "Cluster time", summary.time.0)?;
        figures.seconds(
            "quiet_time_remaining_seconds",
            "For how long nothing is granted after a restore",
            summary.quiet.0 as f64 / 1_000.0,
        )?;

        let status = self.node.status();
        let leader = status.leader.as_ref().map_or(0, |leader| leader.node_id);
        let leads = leader != 0 && Some(leader) == status.node_id;
        figures.gauge("raft_term", "The newest term", status.term)?;
        figures.gauge(
            "raft_leader_id",
            "The leader's node id, 0 if none is known",
            leader,
        )?;
        figures.gauge("raft_is_leader", "1 if this node leads", u64::from(leads))?;
        figures.gauge(
            "raft_last_log_index",
            "The newest entry here",
            status.last_log_index,
        )?;
        figures.gauge(
            "raft_applied_index",
            "The newest applied entry",
            status.applied_index,
        )?;
        if let Some(age) = self.node.age() {
            let help = "How long ago at most this node's state was the newest";
            figures.seconds("state_age_seconds", help, age.as_secs_f64())?;
        }
        Ok(())
    }
}
