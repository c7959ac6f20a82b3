//! Where the mirror learns what is true.

use ringfence_core::{LeaseName, StateMachine};

use crate::decision::LeaseSnapshot;
use crate::position::Position;

/// A node's view of the cluster.
pub trait Source: Send + Sync + 'static {
    /// A lease as it is applied here and now; `None` while the node belongs to no cluster.
    fn look(&self, lease: &LeaseName) -> Option<LeaseSnapshot>;

    /// The names of all leases that begin so.
    fn names(&self, prefix: &str) -> Vec<LeaseName>;

    /// Returns once [`Source::look`] shows everything that the cluster had acknowledged before
    /// this call; `false` if no node could say so.
    fn confirm(&self) -> impl Future<Output = bool> + Send;
}

/// How a lease looks in this state; `None` before a cluster is formed.
#[must_use]
pub fn look(machine: &StateMachine, lease: &LeaseName) -> Option<LeaseSnapshot> {
    let view = machine.get(lease);
    let holder = view.as_ref().and_then(|view| view.holder.as_ref());
    let silent = holder.and_then(|holder| machine.silence(holder.session));
    Some(LeaseSnapshot {
        at: Position {
            counter: machine.token_counter(),
            index: machine.index(),
        },
        cluster: machine.cluster()?,
        now: machine.wall(),
        silent: silent.unwrap_or_default(),
        lease: view,
        forgotten: machine.summary().forgotten,
    })
}
