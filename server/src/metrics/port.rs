//! Counters of listening ports and of what connections hold.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ringfence_services::Pool;
use ringfence_tls::PortFigures;

/// Ports by the name that their series have as the label `port`.
#[derive(Debug)]
pub(super) struct PortCollector {
    ports: Vec<(&'static str, Arc<PortFigures>)>,
    pool: Option<Arc<Pool>>,
}

impl PortCollector {
    pub(super) fn new(
        ports: Vec<(&'static str, Arc<PortFigures>)>,
        pool: Option<Arc<Pool>>,
    ) -> Self {
        Self { ports, pool }
    }

    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: fn(&PortFigures) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (port, figures) in &self.ports {
            let label = [("port", *port)];
            let series = family.encode_family(&label)?;
            ConstCounter::new(value(figures)).encode(series)?;
        }
        Ok(())
    }
}

impl Collector for PortCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut open = encoder.encode_descriptor(
            "connections",
            "Connections open now, by port",
            None,
            MetricType::Gauge,
        )?;
        for (port, figures) in &self.ports {
            let label = [("port", *port)];
            let series = open.encode_family(&label)?;
            gauge(figures.open()).encode(series)?;
        }
        let encoder = &mut encoder;
        self.counter(
            encoder,
            "connections_accepted",
            "Connections accepted, by port",
            PortFigures::accepted,
        )?;
        self.counter(
            encoder,
            "connections_refused",
            "Connections closed on arrival because the port was full",
            PortFigures::refused,
        )?;
        self.counter(
            encoder,
            "connections_displaced",
            "Connections closed to make room for newer ones",
            PortFigures::displaced,
        )?;
        self.counter(
            encoder,
            "connections_timed_out",
            "Connections closed because the other side sent or took nothing for too long",
            PortFigures::timed_out,
        )?;
        self.counter(
            encoder,
            "accept_errors",
            "Accepts that failed, as with too many open files",
            PortFigures::accept_errors,
        )?;
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let help = "Bytes held for clients: calls, messages that arrive, replies not yet read";
        let held = encoder.encode_descriptor("client_held_bytes", help, None, MetricType::Gauge)?;
        gauge(pool.held()).encode(held)
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
