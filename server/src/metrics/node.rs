//! What is read from the node at the moment a client asks.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ringfence_raft::{HistoryState, Node};

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

    /// One gauge per state: 1 for the present one.
    fn states(&mut self, name: &str, help: &str, states: &[(&'static str, bool)]) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (state, here) in states {
            let labels = [("state", *state)];
            ConstGauge::new(i64::from(*here)).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
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
        self.state(&mut figures)?;
        self.raft(&mut figures)?;
        self.storage(&mut figures)?;
        self.history(&mut figures)
    }
}

impl NodeFigures {
    /// What the replicated state holds.
    fn state(&self, figures: &mut Figures<'_>) -> fmt::Result {
        let summary = self.node.read(|state| state.summary());
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
        figures.seconds(
            "cluster_time_seconds",
            "Cluster time since the cluster was formed",
            summary.time.0 as f64 / 1_000.0,
        )?;
        figures.seconds(
            "quiet_time_remaining_seconds",
            "For how long nothing is granted after a restore",
            summary.quiet.0 as f64 / 1_000.0,
        )
    }

    /// Where this node stands in the cluster.
    fn raft(&self, figures: &mut Figures<'_>) -> fmt::Result {
        let status = self.node.status();
        let leader = status.leader.as_ref().map_or(0, |leader| leader.node_id);
        let leads = leader != 0 && Some(leader) == status.node_id;
        figures.gauge(
            "raft_leader_id",
            "The leader's node id, 0 if none is known",
            leader,
        )?;
        figures.gauge("raft_is_leader", "1 if this node leads", u64::from(leads))?;
        if let Some(age) = self.node.age() {
            let help = "How long ago at most this node's state was the newest";
            figures.seconds("state_age_seconds", help, age.as_secs_f64())?;
        }
        let raft = self.node.metrics();
        figures.gauge("raft_term", "The newest term", raft.term)?;
        figures.gauge(
            "raft_last_log_index",
            "The newest entry here",
            raft.last_log_index,
        )?;
        figures.gauge(
            "raft_committed_index",
            "The newest committed entry",
            raft.committed_index,
        )?;
        figures.gauge(
            "raft_applied_index",
            "The newest applied entry",
            raft.applied_index,
        )?;
        figures.gauge(
            "raft_snapshot_index",
            "The newest snapshot's entry",
            raft.snapshot_index,
        )?;
        figures.counter(
            "raft_terms_led",
            "How often this node began to lead",
            raft.terms_led,
        )?;
        figures.counter(
            "raft_leader_changes",
            "Leaders seen to change",
            raft.leader_changes,
        )?;
        figures.counter("applied_entries", "Entries applied", raft.applied)?;
        figures.counter("ticks", "Ticks logged as the leader", raft.ticks)?;
        figures.counter(
            "keep_alive_entries",
            "Entries of keep-alives logged as the leader",
            raft.keep_alive_entries,
        )?;
        figures.counter(
            "keep_alive_sessions",
            "Sessions in these entries",
            raft.keep_alive_sessions,
        )?;
        const MILLIS: f64 = 1_000.0;
        figures.seconds(
            "expiry_lag_seconds",
            "How late after its deadline the newest end by time came, in cluster time",
            raft.last_lag_millis as f64 / MILLIS,
        )?;
        figures.seconds(
            "expiry_lag_max_seconds",
            "How late the latest of these came",
            raft.max_lag_millis as f64 / MILLIS,
        )?;
        figures.gauge(
            "local_waiters",
            "Requests that wait through this node",
            raft.waiters,
        )
    }

    /// Whether this node's history can be used.
    fn history(&self, figures: &mut Figures<'_>) -> fmt::Result {
        let history = self.node.metrics().history;
        let states = HistoryState::ALL.map(|state| (state.name(), state == history.state));
        let help = "1 for the state that this node's history is in";
        figures.states("history_state", help, &states)?;
        figures.counter(
            "history_failures",
            "Failed attempts to open, read or write the history index, and times without room",
            history.failures,
        )?;
        figures.counter(
            "history_set_aside",
            "Damaged history indices that were set aside",
            history.set_aside,
        )?;
        figures.gauge(
            "history_missing_entries",
            "Log entries that the history should cover and does not",
            history.missing,
        )?;
        figures.counter(
            "history_dropped_events",
            "Events that were not recorded because too many waited",
            history.dropped,
        )
    }

    /// What the disk does.
    fn storage(&self, figures: &mut Figures<'_>) -> fmt::Result {
        const MICROS: f64 = 1_000_000.0;
        let disk = self.node.metrics();
        figures.counter("snapshots_built", "Snapshots taken", disk.snapshots_built)?;
        figures.counter(
            "snapshots_failed",
            "Snapshots that could not be taken; each is tried again",
            disk.snapshots_failed,
        )?;
        figures.counter(
            "snapshots_installed",
            "Snapshots taken up",
            disk.snapshots_installed,
        )?;
        figures.counter("wal_entries", "Entries made durable", disk.wal_entries)?;
        figures.counter("wal_bytes", "Bytes made durable", disk.wal_bytes)?;
        figures.counter(
            "wal_fsyncs",
            "Times that the log waited for the disk",
            disk.wal_syncs,
        )?;
        let last = disk.wal_last_sync_micros as f64 / MICROS;
        figures.seconds(
            "wal_fsync_last_seconds",
            "How long the last of these took",
            last,
        )?;
        let slowest = disk.wal_max_sync_micros as f64 / MICROS;
        figures.seconds(
            "wal_fsync_max_seconds",
            "How long the slowest took",
            slowest,
        )?;
        figures.gauge(
            "wal_segments",
            "Segment files with records",
            disk.wal_segments,
        )?;
        figures.gauge(
            "wal_live_bytes",
            "Bytes of the entries in the log",
            disk.wal_live_bytes,
        )?;
        figures.gauge(
            "wal_spare_segments",
            "Segments prepared ahead",
            disk.wal_spare_segments,
        )?;
        figures.counter(
            "wal_spare_failures",
            "Times that a segment could not be prepared ahead",
            disk.wal_spare_failures,
        )?;
        figures.gauge(
            "wal_no_room",
            "1 while the file system has no room for more log and this node takes no more entries",
            u64::from(disk.wal_no_room),
        )?;
        figures.counter(
            "log_reversions",
            "Followers that lost log which they had acknowledged to this node as the leader",
            disk.log_reversions,
        )
    }
}
