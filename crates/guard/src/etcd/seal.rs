//! The guard in etcd as a holder's client seals it.

use super::{EtcdClient, EtcdGuard};
use crate::{Fence, SealAnswer, Sealable, Sealing};

/// A guard in etcd with a client of its own, to be named in an acquire: a
/// [`Sealable`](crate::Sealable).
///
/// It counts as sealed: etcd answers when a majority of its members has the write on disk, so no failover
/// takes it back. A cluster that runs with `--unsafe-no-fsync` looks the same from outside.
#[derive(Clone, Debug)]
pub struct EtcdSeal {
    label: String,
    guard: EtcdGuard,
    client: EtcdClient,
}

impl EtcdSeal {
    /// The seal of a guard, over this client. The two timeouts of its channel bound the wait, see [`EtcdClient`].
    #[must_use]
    pub fn new(guard: EtcdGuard, client: EtcdClient) -> Self {
        Self {
            label: format!("etcd, {}", guard.mark_key()),
            guard,
            client,
        }
    }
}

impl Sealable for EtcdSeal {
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        let mut client = self.client.clone();
        Box::pin(async move { SealAnswer::from(self.guard.advance(&mut client, fence).await) })
    }
}
