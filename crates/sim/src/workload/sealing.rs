//! Holders that seal their leases, and what goes wrong with the stores meanwhile.

use std::sync::Arc;
use std::time::Duration;

use ringfence_client::{HeldLease, Seal, Sealable};

use super::holder::Holder;
use crate::guards::{SealedStore, Store, Visitor};
use crate::observe::{Observation, Sealed};
use crate::random::Random;

/// How many stores each lease has where leases are sealed.
pub const STORES: usize = 3;
/// Of a thousand acquires so many are sealed, in the runs that seal any: one in two.
const SEALED: u64 = 500;
/// Of a thousand seals so many go on although a guard is unsealed.
const GO_ON: u64 = 400;
/// Of a thousand seals so many have a time of their own.
const OWN_TIME: u64 = 500;
/// That time.
const TIME: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(3));
/// Of a thousand acquires before so many a store is disturbed.
const DISTURBED: u64 = 250;
/// How long a store hangs.
const HANGS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(6));
/// How late a store answers.
const LATE: (Duration, Duration) = (Duration::ZERO, Duration::from_millis(1_500));

impl Holder {
    /// The stores of a lease.
    pub(super) fn stores(&self, lease: &str) -> &[Store] {
        self.work.stores.get(lease).map_or(&[], Vec::as_slice)
    }

    /// What an acquire of the lease is sealed with; `None` if it is not.
    pub(super) fn seal(&self, lease: &str) -> Option<Seal> {
        // What is drawn here changes nothing in runs that seal nothing.
        let mut random = self.random.fork("seal");
        let stores = self.stores(lease);
        if stores.len() < STORES || !random.chance(SEALED) {
            return None;
        }
        let named = random.within(1..STORES as u64 + 1);
        let guards = stores.iter().take(usize::try_from(named).unwrap_or(1));
        let guards = guards.map(|store| {
            Arc::new(SealedStore {
                store: store.clone(),
                client: self.client.number(),
                machine: self.client.machine().clone(),
            }) as Arc<dyn Sealable>
        });
        let mut seal = Seal::at_all(guards);
        if random.chance(OWN_TIME) {
            seal = seal.timeout(self.work.pace.of(random.time(TIME.0..TIME.1)));
        }
        if random.chance(GO_ON) {
            seal = seal.go_on_unsealed();
        }
        Some(seal)
    }

    /// Lets one of the lease's stores hang, answer late, or be set back to an older copy.
    pub(super) async fn disturb_stores(&self, lease: &str) {
        let mut random = self.random.fork("stores");
        let stores = self.stores(lease);
        if stores.len() < STORES || !random.chance(DISTURBED) {
            return;
        }
        let Some(store) = random.pick(stores).cloned() else {
            return;
        };
        let pace = self.work.pace;
        match random.within(0..5) {
            0 => store.hang(pace.of(random.time(HANGS.0..HANGS.1))),
            1 => store.answer_late(random.time(LATE.0..LATE.1)),
            2 => store.answer_late(Duration::ZERO),
            3 => store.copy(),
            _ => self.restore(&store, lease).await,
        }
    }

    async fn restore(&self, store: &Store, lease: &str) {
        let Ok(name) = ringfence_core::LeaseName::parse(lease) else {
            return;
        };
        let floor = async {
            let known = self.connected.look_up(&name).await.ok()??;
            known.floor
        };
        store.restore(floor).await;
    }

    /// A lease that was sealed is reported held.
    pub(super) fn saw_sealed(&self, lease: &HeldLease, seal: &Seal) {
        let unsealed = lease.unsealed();
        self.client.recorder().see(Observation::Sealed(Sealed {
            client: self.client.number(),
            lease: lease.name().to_string(),
            token: lease.token().get(),
            stores: seal.labels().map(ToOwned::to_owned).collect(),
            unsealed: unsealed.iter().map(|guard| guard.label.clone()).collect(),
        }));
    }

    /// The first read of a holder: behind an advance, unless the store was sealed with the grant.
    pub(super) async fn first_read(
        &self,
        store: &Store,
        by: &Visitor,
        sealed: bool,
    ) -> Option<u64> {
        match sealed {
            true => store.read(by).await.ok(),
            // From here on the store refuses earlier holders.
            false => store.advance_and_read(by).await.ok(),
        }
    }

    /// The store that a holder works on, and whether the grant was sealed there.
    pub(super) fn store_for(
        &self,
        lease: &HeldLease,
        seal: Option<&Seal>,
    ) -> Option<(Store, bool)> {
        let stores = self.stores(lease.name().as_str());
        let mut random: Random = self.random.fork("store");
        let store = match stores.len() {
            0 | 1 => stores.first()?.clone(),
            _ => random.pick(stores)?.clone(),
        };
        let named = seal.is_some_and(|seal| seal.labels().any(|label| label == store.name()));
        let unsealed = lease.unsealed();
        let unsealed = unsealed.iter().any(|guard| guard.label == store.name());
        let sealed = named && !unsealed;
        Some((store, sealed))
    }
}
