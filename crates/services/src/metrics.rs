//! Counters of the services.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use ringfence_proto::Refusal;
use ringfence_proto::refusal::reason_name;

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

/// What the services of one node count.
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    /// The counters of calls that were answered as asked, by [`Call`]: these are looked up once.
    done: [Counter; Call::ALL.len()],
    renewals: Counter,
    renew_latency: Histogram,
    streams: Gauge<i64, AtomicI64>,
}

impl Metrics {
    /// All at zero.
    pub(crate) fn new() -> Arc<Self> {
        let calls = Family::<CallLabels, Counter>::default();
        let done = Call::ALL.map(|(_, call)| {
            calls
                .get_or_create(&CallLabels { call, result: "OK" })
                .clone()
        });
        Arc::new(Self {
            calls,
            done,
            renewals: Counter::default(),
            renew_latency: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            streams: Gauge::default(),
        })
    }

    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests answered, by call and result",
            self.calls.clone(),
        );
        registry.register(
            "renewals",
            "Sessions kept alive by this node",
            self.renewals.clone(),
        );
        registry.register(
            "renew_latency_seconds",
            "From a keep-alive's arrival to its acknowledgement",
            self.renew_latency.clone(),
        );
        registry.register("streams", "Open streams of clients", self.streams.clone());
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
