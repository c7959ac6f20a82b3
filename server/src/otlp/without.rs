//! A program without the feature `otel` exports nothing. Its configuration names no collector.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use ringfence_raft::Spans;

use crate::config::Config;
use crate::metrics::Metrics;

/// See the other one.
pub(crate) struct Telemetry;

impl Telemetry {
    pub(crate) fn of(_: &Config) -> Result<Option<Self>, String> {
        Ok(None)
    }

    pub(crate) fn spans(&self) -> Spans {
        Spans::default()
    }

    pub(crate) fn register(&self, _: &mut Registry) {}

    pub(crate) fn begin(&mut self, _: &Arc<Metrics>) {}

    pub(crate) async fn end(self) {}
}
