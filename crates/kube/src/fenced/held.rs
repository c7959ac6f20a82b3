//! A lease as the layer asks it.

use std::sync::Arc;

use ringfence_client::{FencingToken, HeldLease, Leading, LeaseName, Loss, Term};

/// A held lease that writes can be fenced with.
pub trait Held: Clone + Send + Sync + 'static {
    /// Name of the lease.
    fn name(&self) -> &LeaseName;

    /// The token of the grant.
    fn token(&self) -> FencingToken;

    /// Why it is held no more, if it is not. Asks the clock each time, and once it has said so it
    /// always does.
    fn loss(&self) -> Option<Loss>;

    /// The API server has refused the token as stale: it is held no more.
    fn report_stale(&self);
}

impl Held for Leading {
    fn name(&self) -> &LeaseName {
        Term::name(self)
    }

    fn token(&self) -> FencingToken {
        Term::token(self)
    }

    fn loss(&self) -> Option<Loss> {
        Term::loss(self)
    }

    fn report_stale(&self) {
        Term::report_stale(self);
    }
}

impl Held for Arc<HeldLease> {
    fn name(&self) -> &LeaseName {
        Term::name(self)
    }

    fn token(&self) -> FencingToken {
        Term::token(self)
    }

    fn loss(&self) -> Option<Loss> {
        Term::loss(self)
    }

    fn report_stale(&self) {
        Term::report_stale(self);
    }
}
