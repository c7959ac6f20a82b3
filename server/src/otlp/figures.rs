//! What became of the spans and figures that a node exports.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a span was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Too many in a second.
    Rate,
    /// Too many wait for the collector.
    Queue,
    /// The collector took it in no try.
    Collector,
}

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SignalLabels {
    signal: &'static str,
}

/// The counters; clones are the same.
#[derive(Clone)]
pub(super) struct Figures {
    sent: Counter,
    dropped: Family<ReasonLabels, Counter>,
    failed: Family<SignalLabels, Counter>,
}

impl Default for Figures {
    fn default() -> Self {
        let figures = Self {
            sent: Counter::default(),
            dropped: Family::default(),
            failed: Family::default(),
        };
        // An alarm about what never happened yet needs a series at zero.
        for why in [Dropped::Rate, Dropped::Queue, Dropped::Collector] {
            figures.dropped(why, 0);
        }
        for signal in [Signal::Traces, Signal::Metrics] {
            figures.failed.get_or_create(&labels(signal)).inc_by(0);
        }
        figures
    }
}

fn labels(signal: Signal) -> SignalLabels {
    SignalLabels {
        signal: signal.name(),
    }
}

impl Figures {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "otlp_spans",
            "Spans that the collector took",
            self.sent.clone(),
        );
        registry.register(
            "otlp_spans_dropped",
            "Spans that were not recorded, by reason",
            self.dropped.clone(),
        );
        registry.register(
            "otlp_failures",
            "Failed tries to export something to the collector, by signal",
            self.failed.clone(),
        );
    }

    pub(super) fn sent(&self, spans: u64) {
        self.sent.inc_by(spans);
    }

    pub(super) fn dropped(&self, why: Dropped, spans: u64) {
        let reason = match why {
            Dropped::Rate => "rate",
            Dropped::Queue => "queue",
            Dropped::Collector => "collector",
        };
        self.dropped
            .get_or_create(&ReasonLabels { reason })
            .inc_by(spans);
    }

    pub(super) fn failed(&self, signal: Signal) {
        self.failed.get_or_create(&labels(signal)).inc();
    }

    #[cfg(test)]
    pub(super) fn count(&self, why: Dropped) -> u64 {
        let before = |reason| self.dropped.get_or_create(&ReasonLabels { reason }).get();
        match why {
            Dropped::Rate => before("rate"),
            Dropped::Queue => before("queue"),
            Dropped::Collector => before("collector"),
        }
    }
}
