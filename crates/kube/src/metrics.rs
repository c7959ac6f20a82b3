//! What the mirror tells of itself.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::decision::Why;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Figures of one node's mirror; clones are the same figures.
#[derive(Clone, Debug)]
pub struct Metrics {
    writes: Family<Kind, Counter>,
    failures: Family<Kind, Counter>,
    lag: Histogram,
    pending: Gauge<i64, AtomicI64>,
    objects: Gauge<i64, AtomicI64>,
    refused: Gauge<i64, AtomicI64>,
    unfit: Gauge<i64, AtomicI64>,
    active: Gauge<i64, AtomicI64>,
    connected: Gauge<i64, AtomicI64>,
    floors_denied: Gauge<i64, AtomicI64>,
}

/// What went wrong, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another writer was faster.
    Conflict,
    /// The API server refused an object.
    Denied,
    /// It did not answer.
    Away,
}

/// The mirror as it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Leases that are to be looked at now, or under way.
    pub(crate) pending: usize,
    /// Number of Lease objects that the mirror knows to exist.
    pub(crate) objects: usize,
    /// Of them, those that are left alone or that the API server refuses.
    pub(crate) refused: usize,
    /// Leases whose names Kubernetes cannot carry.
    pub(crate) unfit: usize,
    /// Whether the API server answers.
    pub(crate) connected: bool,
    /// Whether the API server refuses to show the floors.
    pub(crate) floors_denied: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            writes: Family::default(),
            failures: Family::default(),
            lag: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            pending: Gauge::default(),
            objects: Gauge::default(),
            refused: Gauge::default(),
            unfit: Gauge::default(),
            active: Gauge::default(),
            connected: Gauge::default(),
            floors_denied: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Adds them to what a node shows.
    pub fn register(&self, registry: &mut Registry) {
        // From zero on: what first appears with its first failure cannot be seen to rise.
        for kind in ["created", "moved", "renewed", "undone"] {
            drop(self.writes.get_or_create(&Kind { kind }));
        }
        for kind in ["conflict", "denied", "away"] {
            drop(self.failures.get_or_create(&Kind { kind }));
        }
        let registry = registry.sub_registry_with_prefix("kube_mirror");
        registry.register(
            "writes",
            "Objects written, by reason: created, moved, renewed, undone",
            self.writes.clone(),
        );
        registry.register(
            "failures",
            "Requests without effect: conflict, denied, away",
            self.failures.clone(),
        );
        registry.register(
            "lag_seconds",
            "From the change of a lease to its object's",
            self.lag.clone(),
        );
        registry.register("pending", "Leases to be looked at", self.pending.clone());
        registry.register("objects", "Objects known", self.objects.clone());
        registry.register(
            "refused",
            "Leases whose objects belong to another party or are refused by the API server",
            self.refused.clone(),
        );
        registry.register(
            "unfit",
            "Leases whose names Kubernetes cannot carry",
            self.unfit.clone(),
        );
        registry.register("active", "1 while this node mirrors", self.active.clone());
        registry.register(
            "connected",
            "1 while this node mirrors and the API server answers",
            self.connected.clone(),
        );
        registry.register(
            "floors_denied",
            "1 while this node mirrors and has no right to read the floors, which are not kept then",
            self.floors_denied.clone(),
        );
    }

    /// How many objects were written for a reason, by its name in the figures.
    #[must_use]
    pub fn writes(&self, kind: &'static str) -> u64 {
        self.writes.get_or_create(&Kind { kind }).get()
    }

    pub(crate) fn wrote(&self, why: &Why, lag: Option<Duration>) {
        let kind = match why {
            Why::Created => "created",
            Why::Moved => "moved",
            Why::Renewed => "renewed",
            Why::Undone(_) => "undone",
        };
        self.writes.get_or_create(&Kind { kind }).inc();
        if let Some(lag) = lag {
            self.lag.observe(lag.as_secs_f64());
        }
    }

    pub(crate) fn failed(&self, failure: Failure) {
        let kind = match failure {
            Failure::Conflict => "conflict",
            Failure::Denied => "denied",
            Failure::Away => "away",
        };
        self.failures.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn stands(&self, standing: Standing) {
        let figure = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.pending.set(figure(standing.pending));
        self.objects.set(figure(standing.objects));
        self.refused.set(figure(standing.refused));
        self.unfit.set(figure(standing.unfit));
        self.connected.set(i64::from(standing.connected));
        self.floors_denied.set(i64::from(standing.floors_denied));
    }

    /// Says that this node mirrors, for as long as the returned value lives.
    pub(crate) fn begin(&self) -> Active {
        self.active.set(1);
        Active(self.clone())
    }
}

/// Ends with the mirroring.
pub(crate) struct Active(Metrics);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.set(0);
        self.0.stands(Standing::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_shown() {
        let mut registry = Registry::with_prefix("ringfence");
        let metrics = Metrics::default();
        metrics.register(&mut registry);
        let active = metrics.begin();
        metrics.wrote(&Why::Undone(String::new()), Some(Duration::from_millis(3)));
        metrics.failed(Failure::Away);

        let shown = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        for line in [
            "ringfence_kube_mirror_writes_total{kind=\"undone\"} 1",
            "ringfence_kube_mirror_failures_total{kind=\"away\"} 1",
            "ringfence_kube_mirror_failures_total{kind=\"denied\"} 0",
            "ringfence_kube_mirror_lag_seconds_count 1",
            "ringfence_kube_mirror_active 1",
        ] {
            assert!(shown().contains(line), "{line} is not in\n{}", shown());
        }
        drop(active);
        assert!(shown().contains("ringfence_kube_mirror_active 0"));
    }
}
