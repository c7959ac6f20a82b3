//! Counters of the services.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use ringfence_core::Verb;
use ringfence_proto::Refusal;
use ringfence_proto::refusal::reason_name;
use ringfence_proto::v1::Reason;

use crate::limits::DENIAL_LOGGED_EVERY;
use crate::refusals::{Refusals, Refused};

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
    Access,
    ChangeAccess,
    Backup,
}

impl Call {
    const ALL: [(Self, &'static str); 22] = [
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
        (Self::Access, "access"),
        (Self::ChangeAccess, "change_access"),
        (Self::Backup, "backup"),
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
struct DeniedLabels {
    /// What the caller lacks the right to do; `any` for one that is not looked at at all.
    verb: &'static str,
    /// Whether it was refused, or would have been.
    enforced: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitedLabels {
    /// Which limit was reached.
    limit: &'static str,
    /// Whether the request was refused, or would have been.
    enforced: &'static str,
}

/// The limits of one caller that are counted apart.
const LIMITS: [&str; 7] = [
    "requests_per_principal",
    "bytes_per_principal",
    "connections_per_principal",
    "unknown_sessions_per_principal",
    "failed_proofs_per_source",
    "failed_proofs_per_connection",
    "failed_proofs_per_node",
];

/// What the services of one node count.
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    /// The counters of calls that were answered as asked, by [`Call`]: these are looked up once.
    done: [Counter; Call::ALL.len()],
    renewals: Counter,
    renew_latency: Histogram,
    streams: Gauge<i64, AtomicI64>,
    denied: Family<DeniedLabels, Counter>,
    unproven: Counter,
    limited: Family<LimitedLabels, Counter>,
    denials: Sampled,
    refusals: Refusals,
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
            denied: Family::default(),
            unproven: Counter::default(),
            limited: Family::default(),
            refusals: Refusals::default(),
            denials: Sampled::default(),
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
        registry.register(
            "denied",
            "Requests of callers without the right, refused if rights are enforced",
            self.denied.clone(),
        );
        registry.register(
            "unproven",
            "Requests with a credential that proves nothing",
            self.unproven.clone(),
        );
        registry.register(
            "limited",
            "Requests beyond what one caller may ask of a node, refused if rights are enforced",
            self.limited.clone(),
        );
    }

    /// What was refused, for an audit log.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Counts a request from this source whose credential proves nothing.
    pub fn proof_failed(&self, source: impl FnOnce() -> String, enforced: bool) {
        self.unproven.inc();
        self.refusals.count(|| Refused {
            reason: reason_name(Reason::Unauthenticated),
            what: "any".to_owned(),
            principal: String::new(),
            source: source(),
            enforced,
        });
    }

    /// Counts a request whose credential was not looked at, since too many from this source proved
    /// nothing.
    pub fn proof_limited(&self, limit: &str, source: impl FnOnce() -> String, enforced: bool) {
        self.count_limited(limit, enforced, String::new, source);
    }

    /// Counts a request beyond a limit of this principal.
    pub(crate) fn limited(&self, refusal: &Refusal, principal: &str, enforced: bool) {
        let limit = refusal.metadata.get("limit").map(String::as_str);
        let principal = || principal.to_owned();
        self.count_limited(limit.unwrap_or_default(), enforced, principal, String::new);
    }

    fn count_limited(
        &self,
        limit: &str,
        enforced: bool,
        principal: impl FnOnce() -> String,
        source: impl FnOnce() -> String,
    ) {
        let known = LIMITS.into_iter().find(|known| *known == limit);
        let limit = known.unwrap_or("other");
        let labels = LimitedLabels {
            limit,
            enforced: if enforced { "true" } else { "false" },
        };
        self.limited.get_or_create(&labels).inc();
        self.refusals.count(|| Refused {
            reason: reason_name(Reason::Limit),
            what: limit.to_owned(),
            principal: principal(),
            source: source(),
            enforced,
        });
    }

    /// Counts a refusal for want of a right, or what would have been one; some are logged.
    pub(crate) fn denied(&self, refusal: &Refusal, enforced: bool) {
        let named = |key| refusal.metadata.get(key).map(String::as_str);
        let verb = named("verb").and_then(|verb| verb.parse::<Verb>().ok());
        let verb = verb.map_or("any", Verb::as_str);
        let labels = DeniedLabels {
            verb,
            enforced: if enforced { "true" } else { "false" },
        };
        self.denied.get_or_create(&labels).inc();
        self.refusals.count(|| Refused {
            reason: reason_name(refusal.reason),
            what: verb.to_owned(),
            principal: named("principal").unwrap_or_default().to_owned(),
            source: String::new(),
            enforced,
        });
        let Some(unlogged) = self.denials.take() else {
            return;
        };
        tracing::warn!(
            principal = named("principal").unwrap_or_default(),
            verb,
            names = named("names").unwrap_or_default(),
            enforced,
            unlogged,
            "a caller lacks the right to what it asks for"
        );
    }

    /// Counts an answer.
    pub(crate) fn answered<T>(&self, call: Call, answer: &Result<T, Refusal>) {
        match answer {
            Ok(_) => {
                self.done[call as usize].inc();
            }
            Err(refusal) => {
                if matches!(
                    refusal.reason,
                    Reason::PermissionDenied | Reason::Unauthenticated
                ) {
                    self.denied(refusal, true);
                }
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

/// Lets something be logged now and then.
#[derive(Default)]
struct Sampled(Mutex<(Option<Stopwatch>, u64)>);

impl Sampled {
    /// How many were not logged since the last one that was; `None` if this is one of them.
    fn take(&self) -> Option<u64> {
        let mut sampled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unlogged) = &mut *sampled;
        if last.is_some_and(|last| last.elapsed() < DENIAL_LOGGED_EVERY) {
            *unlogged = unlogged.saturating_add(1);
            return None;
        }
        *last = Some(Stopwatch::start());
        Some(std::mem::take(unlogged))
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
