//! What became of the API server's questions, in figures.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What became of the questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Reviews(Family<Outcome, Counter>);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Reviews {
    pub(super) fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "reviews",
            "Writes asked about, by outcome: admitted, refused, unanswered, malformed, crowded, late",
            self.0.clone(),
        );
    }
}
