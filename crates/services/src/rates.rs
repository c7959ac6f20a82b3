//! How much one principal may ask of this node, where rights bind: requests and bytes in a second,
//! connections at a time.
//!
//! Requests beyond the rate are refused before anything is done for them. Keep-alives never are, and
//! neither are the streams that carry them: a holder does not lose its leases by what else it asks.
//! Bytes are counted where they pass, keep-alives included; what is over the rate is owed, and
//! requests are refused until it is paid. `local` has no limits, and other nodes are no principals.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_access::{Buckets, Exceeded, Rate};
use ringfence_core::{Mode, Principal};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::{Node, since_boot};

use crate::Context;
use crate::caller::Who;
use crate::limits::{
    BYTES_PER_PRINCIPAL, CONNECTIONS_PER_PRINCIPAL, OBJECTS_PER_REQUEST, PRINCIPALS_COUNTED_MAX,
    PRINCIPALS_PER_CONNECTION_MAX, REQUESTS_PER_PRINCIPAL,
};

/// When a connection may be free that a principal has too many of.
const CONNECTION_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Streams that keep-alives come by; what they carry beside is judged frame by frame.
const STREAMS: [&str; 3] = [
    "/ringfence.v1.Connection/Stream",
    "/ringfence.v1.Sessions/KeepAlive",
    // One keep-alive, in JSON.
    "/v1/keep-alive",
];
/// Probes: a node that refuses them is restarted.
const HEALTH: &str = "/grpc.health.v1.Health/";

/// Whether this is the path of a probe by gRPC, which is answered to all callers.
#[must_use]
pub fn is_health(path: &str) -> bool {
    path.starts_with(HEALTH)
}

/// What one principal may have of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrincipalRates {
    /// Requests in a second, and at once.
    pub requests: u64,
    /// Bytes in a second and at once, of requests and answers together.
    pub bytes: u64,
    /// Connections at a time.
    pub connections: u64,
}

impl Default for PrincipalRates {
    fn default() -> Self {
        Self {
            requests: REQUESTS_PER_PRINCIPAL,
            bytes: BYTES_PER_PRINCIPAL,
            connections: CONNECTIONS_PER_PRINCIPAL,
        }
    }
}

/// What all principals have taken of this node.
pub(crate) struct Rates {
    limits: PrincipalRates,
    requests: Buckets,
    bytes: Buckets,
    connections: Mutex<HashMap<Key, u64>>,
    hasher: RandomState,
}

/// A principal's hash, under a key of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key(u64);

impl Rates {
    pub(crate) fn new(limits: PrincipalRates) -> Arc<Self> {
        let buckets = |rate| {
            let rate = Rate {
                per_second: rate,
                burst: rate,
            };
            Buckets::new(rate, PRINCIPALS_COUNTED_MAX)
        };
        Arc::new(Self {
            limits,
            requests: buckets(limits.requests),
            bytes: buckets(limits.bytes),
            connections: Mutex::default(),
            hasher: RandomState::new(),
        })
    }

    fn key(&self, principal: &str) -> Key {
        Key(self.hasher.hash_one(principal))
    }

    /// Takes a request of a principal that owes no bytes.
    fn request(&self, key: Key) -> Result<(), Refusal> {
        let now = since_boot();
        let (requests, bytes) = (self.limits.requests, self.limits.bytes);
        self.bytes.look(&key, now).map_err(|exceeded| {
            let (limit, flag) = ("bytes_per_principal", "--principal-bytes-max");
            over(limit, bytes, flag, exceeded)
        })?;
        self.requests.take(&key, 1, now).map_err(|exceeded| {
            let (limit, flag) = ("requests_per_principal", "--principal-requests-max");
            over(limit, requests, flag, exceeded)
        })
    }

    /// Counts bytes of a principal.
    fn passed(&self, key: Key, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.charge(&key, bytes, since_boot());
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection of this principal, unless it has as many as it may.
    fn enter(&self, key: Key) -> Result<(), Refusal> {
        let mut connections = self.connections();
        let open = connections.entry(key).or_default();
        if *open < self.limits.connections {
            *open += 1;
            return Ok(());
        }
        let max = self.limits.connections;
        let message = format!(
            "connections_per_principal: at most {max} at a time are allowed to one principal at a \
             node; close some, or raise --principal-connections-max"
        );
        Err(Refusal::new(Reason::Limit, message)
            .with("limit", "connections_per_principal")
            .with("max", max)
            .retry_after(CONNECTION_RETRY_AFTER))
    }

    fn leave(&self, key: Key) {
        let mut connections = self.connections();
        if let Some(open) = connections.get_mut(&key) {
            *open -= 1;
            if *open == 0 {
                connections.remove(&key);
            }
        }
    }
}

fn over(limit: &str, max: u64, flag: &str, exceeded: Exceeded) -> Refusal {
    let millis = exceeded.retry_after.as_millis() + 1;
    let message = format!(
        "{limit}: at most {max} a second are allowed to one principal at a node; retry in {millis} \
         ms, or raise {flag}"
    );
    Refusal::new(Reason::Limit, message)
        .with("limit", limit)
        .with("max", max)
        .retry_after(exceeded.retry_after)
}

/// Counts the bytes of one principal's calls, as an extension of each. A stream may outlive the mode
/// that it has begun in, so the mode is asked for when bytes pass.
#[derive(Clone)]
pub struct Meter {
    rates: Arc<Rates>,
    key: Key,
    node: Node,
}

impl Meter {
    pub(crate) fn passed(&self, bytes: usize) {
        if self.node.access_mode() != Mode::Off {
            self.rates.passed(self.key, bytes);
        }
    }
}

/// The principals that one connection counts for. It counts for each that has called on it, at most
/// 16, as one of their connections; dropping it frees them.
pub struct ConnectionPrincipals {
    rates: Arc<Rates>,
    entered: Mutex<VecDeque<Key>>,
}

impl ConnectionPrincipals {
    fn enter(&self, key: Key) -> Result<(), Refusal> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.contains(&key) {
            return Ok(());
        }
        self.rates.enter(key)?;
        // A gateway with more callers than that counts for those that came last.
        if entered.len() >= PRINCIPALS_PER_CONNECTION_MAX
            && let Some(oldest) = entered.pop_front()
        {
            self.rates.leave(oldest);
        }
        entered.push_back(key);
        Ok(())
    }
}

impl Drop for ConnectionPrincipals {
    fn drop(&mut self) {
        let entered = self
            .entered
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        entered.drain(..).for_each(|key| self.rates.leave(key));
    }
}

/// The rates of the caller of a stream, as they bind now.
pub(crate) struct Rated<'a> {
    context: &'a Context,
    principal: &'a str,
    /// `None` if it has no limits.
    key: Option<Key>,
    mode: Mode,
}

impl Rated<'_> {
    /// Takes a request.
    pub(crate) fn request(&self) -> Result<(), Refusal> {
        let Some(key) = self.key else {
            return Ok(());
        };
        let taken = self.context.rates.request(key);
        self.heed(taken)
    }

    /// Takes what it costs to look at so many Lease objects, which is known only when it was done: one
    /// request for each 10 of them, beside the request itself. The principal may owe it.
    pub(crate) fn looked_at(&self, objects: usize) {
        let objects = u64::try_from(objects).unwrap_or(u64::MAX);
        if let Some(key) = self.key {
            let cost = objects / OBJECTS_PER_REQUEST;
            self.context.rates.requests.charge(&key, cost, since_boot());
        }
    }

    /// Refuses where rights bind, and counts.
    fn heed(&self, taken: Result<(), Refusal>) -> Result<(), Refusal> {
        let Err(refusal) = taken else {
            return Ok(());
        };
        let enforced = self.mode == Mode::Enforced;
        self.context
            .metrics
            .limited(&refusal, self.principal, enforced);
        match enforced {
            true => Err(refusal),
            false => Ok(()),
        }
    }
}

impl Context {
    /// The same with other limits of principals.
    #[must_use]
    pub fn with_rates(mut self, limits: PrincipalRates) -> Self {
        self.rates = Rates::new(limits);
        self
    }

    /// For a new connection of this node.
    #[must_use]
    pub fn connection_principals(&self) -> ConnectionPrincipals {
        ConnectionPrincipals {
            rates: Arc::clone(&self.rates),
            entered: Mutex::default(),
        }
    }

    fn rated_as<'a>(&'a self, principal: &'a str) -> Rated<'a> {
        let mode = self.node.access_mode();
        // In the mode `off` all callers may be one.
        let has_limits = mode != Mode::Off && principal != Principal::LOCAL;
        Rated {
            context: self,
            principal,
            key: has_limits.then(|| self.rates.key(principal)),
            mode,
        }
    }

    /// The rates of this caller.
    pub(crate) fn rated<'a>(&'a self, who: &'a Who) -> Rated<'a> {
        let principal = who.principal().map(Principal::as_str);
        self.rated_as(principal.unwrap_or(Principal::ANONYMOUS))
    }

    /// Counts a call of this principal on this connection. What it returns counts the bytes of the
    /// call; `None` if they never need to be.
    ///
    /// # Errors
    /// [`Refusal`] if the principal has taken as much as it may. Nothing was done.
    pub fn begin_call(
        &self,
        principal: &Principal,
        path: &str,
        connection: &ConnectionPrincipals,
    ) -> Result<Option<Meter>, Refusal> {
        if is_health(path) || principal.as_str() == Principal::LOCAL {
            return Ok(None);
        }
        let rated = self.rated_as(principal.as_str());
        let rates = Arc::clone(&self.rates);
        let key = rates.key(principal.as_str());
        // Counted in every mode: a stream may last until rights bind.
        let entered = connection.enter(key);
        // A holder whose node has died comes back by a stream, with all others of its principal.
        if rated.key.is_some() {
            let entered = rated.heed(entered);
            if !STREAMS.contains(&path) {
                entered?;
                rated.request()?;
            }
        }
        let node = self.node.clone();
        Ok(Some(Meter { rates, key, node }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::alone;

    fn rates(requests: u64, bytes: u64, connections: u64) -> Arc<Rates> {
        Rates::new(PrincipalRates {
            requests,
            bytes,
            connections,
        })
    }

    fn limit(refusal: &Refusal) -> &str {
        assert_eq!(refusal.reason, Reason::Limit);
        assert!(refusal.retry_after.is_some(), "{refusal}");
        refusal.metadata["limit"].as_str()
    }

    #[test]
    fn requests_and_bytes_of_one_principal_leave_those_of_another() {
        let rates = rates(3, 1_000, 1);
        let (alice, bob) = (rates.key("token:alice"), rates.key("token:bob"));
        for _ in 0..3 {
            rates.request(alice).unwrap();
        }
        let refused = rates.request(alice).unwrap_err();
        assert_eq!(limit(&refused), "requests_per_principal");
        rates.request(bob).unwrap();
        rates.passed(bob, 5_000);
        let refused = rates.request(bob).unwrap_err();
        assert_eq!(limit(&refused), "bytes_per_principal");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn bytes_of_a_stream_that_began_in_the_mode_off_count_once_rights_bind() {
        let alone = alone().await;
        let limits = PrincipalRates {
            requests: 1_000,
            bytes: 1_000,
            connections: 1,
        };
        let context = alone.context.clone().with_rates(limits);
        let alice = Principal::parse("token:alice").unwrap();
        let (stream, own) = (STREAMS[0], context.connection_principals());
        let meter = context.begin_call(&alice, stream, &own).unwrap();
        let meter = meter.expect("a stream may outlive the mode");
        meter.passed(5_000);
        let rated = || context.rated_as(alice.as_str()).request();
        rated().expect("the mode is off");

        alone.enforce().await;
        rated().expect("what passed before is not counted");
        meter.passed(5_000);
        assert_eq!(limit(&rated().unwrap_err()), "bytes_per_principal");
        // Its connection counts too.
        let other = context.connection_principals();
        let refused = context.begin_call(&alice, "/x", &other).err().unwrap();
        assert_eq!(limit(&refused), "connections_per_principal");
        let local = Principal::local();
        assert!(
            context
                .begin_call(&local, stream, &other)
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn objects_that_are_looked_at_are_requests_of_their_principal() {
        let alone = alone().await;
        alone.enforce().await;
        let limits = PrincipalRates {
            requests: 10,
            bytes: 1_000,
            connections: 1,
        };
        let context = alone.context.clone().with_rates(limits);
        let rated = |name| context.rated_as(name);
        rated("token:alice").looked_at(100);
        let refused = rated("token:alice").request().unwrap_err();
        assert_eq!(limit(&refused), "requests_per_principal");
        rated("token:bob").request().unwrap();
        rated(Principal::LOCAL).looked_at(1_000);
        rated(Principal::LOCAL).request().unwrap();
    }

    #[test]
    fn a_connection_counts_for_its_principals_until_it_is_closed() {
        let rates = rates(1, 1, 2);
        let open = || ConnectionPrincipals {
            rates: Arc::clone(&rates),
            entered: Mutex::default(),
        };
        let alice = rates.key("token:alice");
        let [one, two, three] = [open(), open(), open()];
        for _ in 0..5 {
            one.enter(alice).unwrap();
        }
        two.enter(alice).unwrap();
        let refused = three.enter(alice).unwrap_err();
        assert_eq!(limit(&refused), "connections_per_principal");
        three.enter(rates.key("token:bob")).unwrap();
        drop(one);
        three.enter(alice).unwrap();
        drop((two, three));
        assert!(rates.connections().is_empty());
    }

    #[test]
    fn attack_a_million_principals_on_one_connection_take_no_more_memory_than_sixteen() {
        let rates = rates(10, 10, 10);
        let gateway = ConnectionPrincipals {
            rates: Arc::clone(&rates),
            entered: Mutex::default(),
        };
        for n in 0..1_000_000_u32 {
            let key = rates.key(&format!("jwt:ci:{n}"));
            gateway.enter(key).unwrap();
            rates.request(key).unwrap();
        }
        assert_eq!(rates.connections().len(), PRINCIPALS_PER_CONNECTION_MAX);
        assert!(rates.requests.used(since_boot()) <= PRINCIPALS_COUNTED_MAX);
    }
}
