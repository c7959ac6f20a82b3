//! The way to the cluster that all parts of one client share: its thread, its connection, and what
//! is known of the cluster at the other end. Of sessions it knows only what it [calls](TransportCallbacks).
//!
//! `driver` is the client's own thread. On it `connection_loop` keeps one stream open:
//! `endpoint_selector` chooses the member, `race` tries several, `connection` connects to one
//! `endpoint` (by `tls`) and shows a `credential`. `link` puts calls onto that stream, many in one
//! message, and `calls` remembers them; `unary` and `streams` use the same connection. `retry` says when
//! to try again, and `random` supplies the jitter. A call fails with an `error`, which may carry a
//! `refusal`; `trace` is the caller's place in a trace, and `options` are the settings.

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod connection_loop;
pub(crate) mod credential;
pub(crate) mod driver;
pub(crate) mod endpoint;
pub(crate) mod endpoint_selector;
pub(crate) mod error;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod race;
pub(crate) mod random;
pub(crate) mod refusal;
pub(crate) mod retry;
pub(crate) mod streams;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod trace;
pub(crate) mod unary;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use ringfence_core::ClusterId;
use ringfence_proto::v1::{client_frame, server_frame};
use tokio::sync::Semaphore;

use crate::clock::Moment;
use crate::sync::lock;
use crate::transport::driver::{AbortOnDrop, Thread};
use crate::transport::endpoint_selector::EndpointSelector;
use crate::transport::error::CallError;
use crate::transport::link::Link;
use crate::transport::options::Options;
use crate::transport::trace::TraceParent;

/// The most unary calls that go on to their answers although no caller waits for these any more.
const ABANDONED_MAX: usize = 1_024;

/// What the transport has to know of the sessions that use it.
pub(crate) trait TransportCallbacks: Send + Sync {
    /// Whether there are none: then nothing is lost by a change of the cluster.
    fn is_idle(&self) -> bool;

    /// The shortest TTL among them.
    fn shortest_ttl(&self) -> Option<Duration>;

    /// This request is about to be sent: no holder believes in what it ends when this returns.
    fn end_belief_before(&self, body: &client_frame::Body);

    /// The cluster is another one, which knows none of them.
    fn cluster_changed(&self);
}

/// See the module. It does not keep the client's thread running; a
/// [`KeepRunning`](crate::transport::driver::KeepRunning) does.
pub(crate) struct Transport {
    pub(crate) options: Options,
    pub(crate) thread: Thread,
    pub(crate) link: Link,
    endpoints: Mutex<EndpointSelector>,
    cluster: Mutex<Option<ClusterId>>,
    cluster_time_ms: AtomicU64,
    /// Room for unary calls that go on without their callers.
    pub(crate) abandoned: Semaphore,
    /// The sessions hold the transport, so it must not hold them.
    callbacks: Weak<dyn TransportCallbacks>,
}

impl Transport {
    pub(crate) fn new(
        options: Options,
        thread: Thread,
        endpoints: EndpointSelector,
        callbacks: Weak<dyn TransportCallbacks>,
    ) -> Self {
        Self {
            link: Link::new(Arc::clone(&options.clock)),
            options,
            thread,
            endpoints: Mutex::new(endpoints),
            cluster: Mutex::default(),
            cluster_time_ms: AtomicU64::new(0),
            abandoned: Semaphore::new(ABANDONED_MAX),
            callbacks,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.options.clock.now()
    }

    /// The deadline of a request that is sent now.
    pub(crate) fn deadline(&self) -> Moment {
        self.now() + self.options.request_timeout
    }

    /// The place in a trace of the caller that this code runs for.
    pub(crate) fn caller_in_trace(&self) -> Option<TraceParent> {
        self.options
            .trace_context
            .as_ref()
            .and_then(|asked| asked())
    }

    /// A call failed: perhaps for the token that was shown.
    pub(crate) fn note_refusal(&self, error: &CallError) {
        if let CallError::Refused(refusal) = error {
            self.options.credential.refused(refusal);
        }
    }

    /// Sleeps until `moment`, on any executor: the client's own thread keeps the timer.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        let clock = Arc::clone(&self.options.clock);
        let asleep = self
            .thread
            .spawn(async move { clock.sleep_until(moment).await });
        // The thread ends only when no caller has a use for this client any more.
        drop((&mut AbortOnDrop(asleep).0).await);
    }

    /// Sleeps for this long; for tasks of the client's own thread.
    pub(crate) async fn sleep(&self, pause: Duration) {
        let clock = &self.options.clock;
        clock.sleep_until(clock.now() + pause).await;
    }

    pub(crate) fn endpoints(&self) -> MutexGuard<'_, EndpointSelector> {
        lock(&self.endpoints)
    }

    /// Whether no session would be lost by a change of the cluster.
    pub(crate) fn is_idle(&self) -> bool {
        self.callbacks
            .upgrade()
            .is_none_or(|callbacks| callbacks.is_idle())
    }

    /// The shortest TTL among the sessions that are kept alive.
    pub(crate) fn shortest_ttl(&self) -> Option<Duration> {
        self.callbacks.upgrade()?.shortest_ttl()
    }

    /// The newest cluster time seen, in milliseconds; 0 before the first greeting.
    pub(crate) fn cluster_time_ms(&self) -> u64 {
        self.cluster_time_ms.load(Ordering::Relaxed)
    }

    /// Takes notice of a cluster time that a reply carried.
    pub(crate) fn saw_cluster_time(&self, millis: u64) {
        self.cluster_time_ms.fetch_max(millis, Ordering::Relaxed);
    }

    /// Whether a member of `cluster` is one of ours: it is if this client knows no cluster yet.
    pub(crate) fn is_ours(&self, cluster: ClusterId) -> bool {
        lock(&self.cluster).is_none_or(|known| known == cluster)
    }

    /// The cluster that this client belongs to, once it knows one.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        *lock(&self.cluster)
    }

    /// Belongs to `cluster` from now on. Sessions of another one are lost.
    pub(crate) fn belong_to(&self, cluster: ClusterId, time_ms: u64) {
        // The lock is released before the callback: sessions that are lost ask the transport for
        // its clock and its deadlines.
        let before = lock(&self.cluster).replace(cluster);
        self.options.credential.name_cluster(cluster);
        if before.is_some_and(|before| before != cluster) {
            self.cluster_time_ms.store(time_ms, Ordering::Relaxed);
            if let Some(callbacks) = self.callbacks.upgrade() {
                callbacks.cluster_changed();
            }
        }
        self.saw_cluster_time(time_ms);
    }
}

/// The cluster time that a reply carries, if it does.
pub(crate) fn cluster_time_of(body: &server_frame::Body) -> Option<u64> {
    use server_frame::Body;
    match body {
        Body::Greeting(greeting) => Some(greeting.cluster_time_ms),
        Body::Open(reply) => Some(reply.cluster_time_ms),
        Body::KeepAlive(reply) => Some(reply.cluster_time_ms),
        Body::Close(reply) => Some(reply.cluster_time_ms),
        Body::Acquire(reply) => Some(reply.cluster_time_ms),
        Body::Cancel(reply) => Some(reply.cluster_time_ms),
        Body::Release(reply) => Some(reply.cluster_time_ms),
        Body::Transfer(reply) => Some(reply.cluster_time_ms),
        Body::Get(reply) => reply.at.as_ref().map(|at| at.cluster_time_ms),
        Body::Check(reply) => reply.at.as_ref().map(|at| at.cluster_time_ms),
        Body::Refusal(_) | Body::GoingAway(_) => None,
    }
}
