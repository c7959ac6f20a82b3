//! Whether the cluster can lose one more node, as this node sees it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use ringfence_access::now_unix;
use ringfence_raft::Standing;

use super::certificates::Certificates;
use crate::identify::IdentifyLayer;
use crate::progress::Progress;

/// Figures of a node as a member.
pub(super) struct ClusterFigures {
    progress: Progress,
    callers: IdentifyLayer,
    certificates: Certificates,
}

impl ClusterFigures {
    /// Figures of the node that makes this progress, proves `callers` and shows `certificates`.
    pub(super) fn new(
        progress: Progress,
        callers: IdentifyLayer,
        certificates: Certificates,
    ) -> Self {
        Self {
            progress,
            callers,
            certificates,
        }
    }
}

impl fmt::Debug for ClusterFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterFigures")
    }
}

impl Collector for ClusterFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)
        };
        let node = self.progress.node();
        let ready = self.progress.check().is_ok();
        gauge("ready", "1 while /readyz succeeds", i64::from(ready))?;
        let voter = node.standing() == Standing::Voter;
        gauge("is_voter", "1 if this node has a vote", i64::from(voter))?;
        if let Some(voters) = node.voters() {
            let newest = voters.sets.last().map_or(0, |set| set.len());
            let help = "Members with a vote, as this node knows them";
            gauge("voters", help, i64::try_from(newest).unwrap_or(i64::MAX))?;
        }
        if let Some(able) = node.voters_caught_up() {
            let help = "Of these, those that answer and lack few entries of the log; shown by the \
                        leader alone, itself included";
            let able = i64::try_from(able).unwrap_or(i64::MAX);
            gauge("voters_caught_up", help, able)?;
        }
        let help =
            "Issuers of JWTs whose former keys are in use, since their file with keys cannot be";
        let unusable = i64::try_from(self.callers.key_files_unusable()).unwrap_or(i64::MAX);
        gauge("key_files_unusable", help, unusable)?;
        if let Some(apart) = node.clocks_apart() {
            let help = "How far the wall clock of another member is at least from this node's, the \
                        farthest of those that answer";
            let name = "clock_offset_seconds";
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(apart.as_secs_f64()).encode(gauge)?;
        }
        let help = "For how long a port's certificates are valid, 0 after the first end and before a begin";
        let name = "certificate_expiry_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (port, left) in self.certificates.remaining(now_unix()) {
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            ConstGauge::new(left).encode(family.encode_family(&[("port", port)])?)?;
        }
        Ok(())
    }
}
