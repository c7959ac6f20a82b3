//! What `/metrics` shows, in Prometheus' text form; every name begins with `ringfence_`.

mod node;
mod port;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use ringfence_core::{EndCause, Event};
use ringfence_proto::Refusal;
use ringfence_proto::refusal::reason_name;
use ringfence_raft::Node;
use ringfence_tls::PortFigures;

use self::port::PortCollector;
use crate::clients::Pool;

/// The calls that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    KeepAlive,
    Close,
    Evict,
    Acquire,
    Cancel,
    Release,
    Transfer,
    Revoke,
    Get,
    List,
    Check,
    Watch,
    WatchFloors,
    History,
    GetSession,
    ListSessions,
    Configure,
    Membership,
}

impl Call {
    const ALL: [(Self, &'static str); 19] = [
        (Self::Open, "open"),
        (Self::KeepAlive, "keep_alive"),
        (Self::Close, "close"),
        (Self::Evict, "evict"),
        (Self::Acquire, "acquire"),
        (Self::Cancel, "cancel"),
        (Self::Release, "release"),
        (Self::Transfer, "transfer"),
        (Self::Revoke, "revoke"),
        (Self::Get, "get"),
        (Self::List, "list"),
        (Self::Check, "check"),
        (Self::Watch, "watch"),
        (Self::WatchFloors, "watch_floors"),
        (Self::History, "history"),
        (Self::GetSession, "get_session"),
        (Self::ListSessions, "list_sessions"),
        (Self::Configure, "configure"),
        (Self::Membership, "membership"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
    /// `OK`, or the reason of the refusal.
    result: &'static str,
}

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
    /// What the connections of clients hold.
    pub(crate) pool: Arc<Pool>,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self {
            client: Arc::default(),
            http: Arc::default(),
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
    calls: Family<CallLabels, Counter>,
    /// The counters of calls that were answered as asked, by [`Call`]: these are looked up once.
    done: Vec<Counter>,
    renewals: Counter,
    renew_latency: Histogram,
    transitions: Family<CauseLabels, Counter>,
    streams: Gauge<i64, AtomicI64>,
}

impl Metrics {
    /// The counters of `node`, all at zero, and those of its mirror to Kubernetes and of its
    /// watcher of Pods.
    pub(crate) fn new(
        node: &Node,
        ports: &Ports,
        mirror: Option<&ringfence_kube::Metrics>,
        pods: Option<&ringfence_kube::pods::Figures>,
    ) -> Arc<Self> {
        let mut registry = Registry::with_prefix("ringfence");
        let calls = Family::<CallLabels, Counter>::default();
        let done = Call::ALL.map(|(_, call)| {
            calls
                .get_or_create(&CallLabels { call, result: "OK" })
                .clone()
        });
        let renewals = Counter::default();
        let renew_latency = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let transitions = Family::<CauseLabels, Counter>::default();
        let streams = Gauge::default();
        registry.register(
            "requests",
            "Requests answered, by call and result",
            calls.clone(),
        );
        registry.register(
            "renewals",
            "Sessions kept alive by this node",
            renewals.clone(),
        );
        registry.register(
            "renew_latency_seconds",
            "From a keep-alive's arrival to its acknowledgement",
            renew_latency.clone(),
        );
        registry.register(
            "lease_transitions",
            "Grants and their ends as this node applied them, by cause",
            transitions.clone(),
        );
        registry.register("streams", "Open streams of clients", streams.clone());
        if let Some(mirror) = mirror {
            mirror.register(&mut registry);
        }
        if let Some(pods) = pods {
            pods.register(&mut registry);
        }
        let pool = Some(ports.pool.clone());
        let ports = vec![
            ("client", ports.client.clone()),
            ("peer", node.peer_port().clone()),
            ("http", ports.http.clone()),
        ];
        registry.register_collector(Box::new(PortCollector::new(ports, pool)));
        registry.register_collector(Box::new(node::NodeFigures::new(node.clone())));
        let done = done.to_vec();
        Arc::new(Self {
            registry,
            calls,
            done,
            renewals,
            renew_latency,
            transitions,
            streams,
        })
    }

    /// Counts an answer.
    pub(crate) fn answered<T>(&self, call: Call, answer: &Result<T, Refusal>) {
        match answer {
            Ok(_) => {
                self.done[call as usize].inc();
            }
            Err(refusal) => {
                let result = reason_name(refusal.reason);
                self.calls
                    .get_or_create(&CallLabels {
                        call: call.name(),
                        result,
                    })
                    .inc();
            }
        }
    }

    /// Counts an acknowledged keep-alive of so many sessions.
    pub(crate) fn renewed(&self, sessions: usize, since: Stopwatch) {
        self.renewals.inc_by(sessions as u64);
        self.renew_latency.observe(since.elapsed().as_secs_f64());
    }

    /// Starts to measure.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start()
    }

    /// Counts a stream for as long as the returned value lives.
    pub(crate) fn stream_opened(self: &Arc<Self>) -> OpenStream {
        self.streams.inc();
        OpenStream {
            metrics: self.clone(),
        }
    }

    /// Everything in Prometheus' text form.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut shown = String::new();
        text::encode(&mut shown, &self.registry)?;
        Ok(shown)
    }

    /// Counts the grants and ends that `node` applies, for as long as it lives.
    pub(crate) async fn count_transitions(self: Arc<Self>, node: Node) {
        const BATCH: usize = 1_000;
        let mut feed = node.events();
        let mut at = feed.head();
        loop {
            match feed.since(at, BATCH) {
                Ok(batch) => {
                    batch.events.iter().for_each(|(_, event)| self.count(event));
                    at = batch.upto;
                    if batch.events.len() == BATCH {
                        continue;
                    }
                }
                // What was missed stays uncounted; a rate over it is wrong once.
                Err(_) => at = feed.head(),
            }
            feed.changed().await;
        }
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

/// Counts one open stream until it is dropped.
pub(crate) struct OpenStream {
    metrics: Arc<Metrics>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.streams.dec();
    }
}

/// Measures how long something took, for people only.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "measures for people; decides nothing"
    )]
    fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    fn elapsed(self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_stands_at_its_own_place_in_the_table() {
        for (place, (call, name)) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, place);
            assert_eq!(call.name(), name);
        }
    }
}
