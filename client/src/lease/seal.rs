//! What a lease is sealed with: the guards, the time for it, and what to do if it is over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::Sealable;

/// The longest time for sealing unless it is set.
const TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// The guards that a lease is sealed at, before it is reported held.
///
/// After the grant all guards are asked at once to raise their marks to the new token. When all
/// have answered, no write of an earlier holder is admitted there any more, and the caller gets the
/// lease. Until then it was never held, so nothing has to be stopped if it ends meanwhile. The
/// window is counted from the same moment as without sealing.
///
/// A guard counts as unsealed if it does not answer within the [timeout](Self::timeout), if it
/// fails, or if its store can lose what it has acknowledged, to an asynchronous replica for
/// example. The lease is then given back, unless the seal says to
/// [go on](Self::go_on_unsealed). A guard that has seen a greater token ends the grant in any case.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use ringfence_client::{Fence, HeldLease, Refused, Seal, Session, sealable_fn};
///
/// # struct Store;
/// # impl Store {
/// #     async fn advance(&self, fence: &Fence) -> Result<(), Refused> { Ok(()) }
/// # }
/// # async fn f(session: Session, orders: Arc<Store>) -> Result<(), Box<dyn std::error::Error>> {
/// let orders = sealable_fn("orders", move |fence| {
///     let orders = Arc::clone(&orders);
///     async move { orders.advance(&fence).await }
/// });
/// // From here on the store refuses every earlier holder.
/// let lease = session.acquire("orders/writer").seal(Seal::at(orders)).send().await?;
/// # drop(lease);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a seal does nothing until an acquire, a lock or a campaign has it"]
pub struct Seal {
    pub(crate) guards: Vec<Arc<dyn Sealable>>,
    timeout: Option<Duration>,
    pub(crate) goes_on: bool,
}

impl Seal {
    /// A seal at one guard.
    pub fn at(guard: impl Sealable + 'static) -> Self {
        Self::default().and(guard)
    }

    /// A seal at several guards; at none it does nothing.
    pub fn at_all(guards: impl IntoIterator<Item = Arc<dyn Sealable>>) -> Self {
        Self {
            guards: guards.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds a guard.
    pub fn and(mut self, guard: impl Sealable + 'static) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    /// How long the guards have to answer; a third of the session's TTL and at most 5 s unless
    /// set. It ends sooner when the session comes into jeopardy, and with the wait of a
    /// [lock](crate::LockRequest::wait).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Reports the lease held although guards are unsealed. [`Term::unsealed`](crate::Term::unsealed)
    /// names them, and so does the log. The holder has to advance each of them before its first
    /// read there.
    pub fn go_on_unsealed(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// What its guards call themselves, in their order.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(|guard| guard.label())
    }

    /// Whether it names no guard.
    pub(crate) fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// For how long at most the guards are waited for.
    pub(crate) fn time_for(&self, ttl: Duration) -> Duration {
        self.timeout.unwrap_or_else(|| TIMEOUT_MAX.min(ttl / 3))
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("guards", &self.labels().collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .field("goes_on", &self.goes_on)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_have_a_third_of_the_ttl_and_at_most_5_s() {
        let (seal, seconds) = (Seal::default(), Duration::from_secs);
        assert_eq!(seal.time_for(seconds(6)), seconds(2));
        assert_eq!(seal.time_for(seconds(15)), seconds(5));
        assert_eq!(seal.time_for(Duration::from_millis(u64::MAX)), seconds(5));
        assert_eq!(seal.timeout(seconds(7)).time_for(seconds(6)), seconds(7));
    }
}
