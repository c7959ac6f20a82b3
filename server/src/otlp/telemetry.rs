//! The tasks that export.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use ringfence_raft::{Spans, since_boot};
use ringfence_services::since_epoch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::encoding::{self, Times};
use super::figures::{Dropped, Figures, Signal};
use super::messages::{Resource, resource};
use super::queue::Queue;
use super::sending::Collector;
use super::tracer::Tracer;
use crate::config::{Config, Sampler};
use crate::limits::{OTLP_FLUSH_MAX, OTLP_LOG_PAUSE};
use crate::metrics::Metrics;

/// What is recorded of a node, to whom.
pub(crate) struct Telemetry {
    exporter: Exporter,
    sampler: Option<Sampler>,
    metrics_every: Option<Duration>,
    metrics: Option<Arc<Metrics>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Clone)]
struct Exporter {
    collector: Collector,
    resource: Arc<Resource>,
    queue: Arc<Queue>,
    figures: Figures,
    /// When this process began to count, in Unix time.
    since: Duration,
}

impl Telemetry {
    /// What this node is configured to export, if it is anything.
    ///
    /// # Errors
    /// What of TLS cannot be used, and what to do.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, String> {
        let Some(otlp) = &config.otlp else {
            return Ok(None);
        };
        let figures = Figures::default();
        let own = [
            ("service.name", "ringfence"),
            ("service.instance.id", config.name.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let exporter = Exporter {
            collector: Collector::new(otlp, figures.clone())?,
            resource: Arc::new(resource(&own, &otlp.resource)),
            queue: Arc::default(),
            figures,
            since: since_epoch(),
        };
        Ok(Some(Self {
            exporter,
            sampler: otlp.traces,
            metrics_every: otlp.metrics_every,
            metrics: None,
            tasks: Vec::new(),
        }))
    }

    /// Where the node's spans go.
    pub(crate) fn spans(&self) -> Spans {
        match self.sampler {
            None => Spans::default(),
            Some(sampler) => {
                let Exporter { queue, figures, .. } = &self.exporter;
                let tracer = Tracer::new(sampler, Arc::clone(queue), figures.clone());
                Spans::to(Arc::new(tracer))
            }
        }
    }

    /// Shows what became of what was recorded.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.exporter.figures.register(registry);
    }

    /// Begins to export.
    pub(crate) fn begin(&mut self, metrics: &Arc<Metrics>) {
        if self.sampler.is_some() {
            let exporter = self.exporter.clone();
            let exporting = async move { exporter.export_spans().await };
            self.tasks.push(tokio::spawn(exporting));
        }
        if let Some(every) = self.metrics_every {
            self.metrics = Some(Arc::clone(metrics));
            let (exporter, metrics) = (self.exporter.clone(), Arc::clone(metrics));
            let exporting = async move { exporter.export_metrics(&metrics, every).await };
            self.tasks.push(tokio::spawn(exporting));
        }
    }

    /// Exports what still waits, and the last figures, within [`OTLP_FLUSH_MAX`].
    pub(crate) async fn end(self) {
        for task in &self.tasks {
            task.abort();
        }
        let last = async {
            let spans = async {
                loop {
                    let batch = self.exporter.queue.take();
                    if batch.is_empty()
                        || self.exporter.export_batch(batch, Tries::One).await.is_err()
                    {
                        return;
                    }
                }
            };
            let figures = async {
                if let Some(metrics) = &self.metrics {
                    self.exporter.export_page(metrics, Tries::One).await.ok();
                }
            };
            tokio::join!(spans, figures)
        };
        if timeout(OTLP_FLUSH_MAX, last).await.is_err() {
            warn!("the collector of traces did not take the last of them in time");
        }
    }
}

/// How often something is tried.
#[derive(Clone, Copy)]
enum Tries {
    One,
    Several,
}

impl Exporter {
    async fn export_spans(self) {
        let mut trouble = Trouble::of(Signal::Traces);
        loop {
            let batch = self.queue.batch().await;
            trouble.note(self.export_batch(batch, Tries::Several).await);
        }
    }

    async fn export_batch(
        &self,
        batch: Vec<ringfence_raft::Span>,
        tries: Tries,
    ) -> Result<(), String> {
        let spans = batch.len() as u64;
        let boot = since_epoch().saturating_sub(since_boot());
        let message = encoding::traces(&self.resource, batch, boot);
        let done = match tries {
            Tries::One => self.collector.export_once(Signal::Traces, &message).await,
            Tries::Several => self.collector.export(Signal::Traces, &message).await,
        };
        let rejected = done
            .as_ref()
            .map_or(spans, |rejected| (*rejected).min(spans));
        self.figures.sent(spans - rejected);
        self.figures.dropped(Dropped::Collector, rejected);
        done.map(drop)
            .map_err(|status| self.collector.words(&status))
    }

    async fn export_metrics(self, metrics: &Metrics, every: Duration) {
        let mut trouble = Trouble::of(Signal::Metrics);
        let mut due = interval(every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once, when there is nothing to export.
        due.tick().await;
        loop {
            due.tick().await;
            // Figures of a minute ago are worth no second try once there are newer ones.
            let done = timeout(every, self.export_page(metrics, Tries::Several)).await;
            let late = Err("it did not take them before the next were due".to_owned());
            trouble.note(done.unwrap_or(late));
        }
    }

    async fn export_page(&self, metrics: &Metrics, tries: Tries) -> Result<(), String> {
        let page = metrics.encode().map_err(|error| error.to_string())?;
        let times = Times {
            since: self.since,
            now: since_epoch(),
        };
        for message in encoding::metrics(&self.resource, &page, times)? {
            let done = match tries {
                Tries::One => self.collector.export_once(Signal::Metrics, &message).await,
                Tries::Several => self.collector.export(Signal::Metrics, &message).await,
            };
            done.map_err(|status| self.collector.words(&status))?;
        }
        Ok(())
    }
}

/// Logs the first failure, and the end of failures: one line for a change, and none within
/// [`OTLP_LOG_PAUSE`] of the one before, so that a collector that comes and goes fills no log.
struct Trouble {
    signal: Signal,
    /// Whether the log says that it fails.
    said: bool,
    said_at: Option<Duration>,
}

impl Trouble {
    fn of(signal: Signal) -> Self {
        let (said, said_at) = (false, None);
        Self {
            signal,
            said,
            said_at,
        }
    }

    fn note(&mut self, done: Result<(), String>) {
        if !self.is_due(done.is_err(), since_boot()) {
            return;
        }
        let signal = self.signal.name();
        match done {
            Ok(()) => info!(signal, "the collector takes what it is sent again"),
            Err(why) => warn!(
                signal,
                %why,
                "the collector takes nothing; leases go on without it, and what it is sent meanwhile \
                 is dropped and counted"
            ),
        }
    }

    fn is_due(&mut self, fails: bool, now: Duration) -> bool {
        let is_soon = |at: Duration| now.saturating_sub(at) < OTLP_LOG_PAUSE;
        if fails == self.said || self.said_at.is_some_and(is_soon) {
            return false;
        }
        self.said = fails;
        self.said_at = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_comes_and_goes_fills_no_log() {
        let mut trouble = Trouble::of(Signal::Traces);
        let at = |second| Duration::from_secs(1_000 + second);
        assert!(!trouble.is_due(false, at(0)), "it was never said to fail");
        assert!(trouble.is_due(true, at(1)));
        let pause = OTLP_LOG_PAUSE.as_secs();
        let said = (2..=pause).filter(|second| trouble.is_due(second % 2 == 0, at(*second)));
        assert_eq!(said.count(), 0);
        assert!(trouble.is_due(false, at(1 + pause)), "how it is then");
        assert!(
            !trouble.is_due(false, at(2 + 2 * pause)),
            "it is said already"
        );
        assert!(trouble.is_due(true, at(2 + 2 * pause)));
    }
}
