//! What the clients of a run do: sessions, leases, guarded writes; and some who do not listen.
//!
//! - [`session`] opens sessions, keeps a few workers busy in each, and closes them.
//! - [`holder`] acquires leases, writes to guarded stores while they last, and gives them up in every
//!   way there is. A part of them are zombies: they go on writing when their lease is lost.
//! - [`sealing`] seals a part of the leases, and disturbs the stores meanwhile.
//! - [`operator`] revokes and evicts, and probes whether the service is there.
//! - [`watcher`] follows what is granted, from node to node.
//! - [`administrator`] changes rights.
//! - [`thief`] asks in the name of others.
//! - [`elector`] runs client-go's election at the Lease endpoint, [`election`] disturbs it, and
//!   [`object_watcher`] watches the objects.

pub mod administrator;
pub mod election;
pub mod elector;
pub mod holder;
pub mod object_watcher;
pub mod operator;
pub mod sealing;
pub mod session;
pub mod thief;
pub mod watcher;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use crate::guards::Store;

/// How fast clients and operators live: by how much longer than in a brisk run they rest, think, wait
/// and keep their sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(pub u32);

impl Pace {
    /// Several things in each second, so that a minute shows much.
    pub const BRISK: Self = Self(1);
    /// Most of the time nothing happens, as in most clusters: an hour shows what time alone does.
    pub const EASY: Self = Self(10);

    /// This time of a brisk run at this pace.
    #[must_use]
    pub fn of(self, brisk: Duration) -> Duration {
        brisk * self.0
    }

    /// Of a thousand runs at this pace so many have what so many brisk ones have: they last longer.
    #[must_use]
    pub fn per_mille(self, brisk: u64) -> u64 {
        (brisk * u64::from(self.0)).min(1_000)
    }
}

/// What there is to work with.
pub struct Work {
    /// The stores, by the lease that guards them.
    pub stores: BTreeMap<String, Vec<Store>>,
    /// The TTLs that sessions have.
    pub ttls: Vec<Duration>,
    /// Of a thousand holders so many do not listen when their lease is lost.
    pub zombies_per_mille: u64,
    /// How fast it is done.
    pub pace: Pace,
    over: watch::Sender<bool>,
}

impl Work {
    /// Work on these stores.
    #[must_use]
    pub fn new(
        stores: BTreeMap<String, Vec<Store>>,
        ttls: Vec<Duration>,
        zombies_per_mille: u64,
        pace: Pace,
    ) -> Self {
        Self {
            stores,
            ttls,
            zombies_per_mille,
            pace,
            over: watch::Sender::new(false),
        }
    }

    /// No client begins anything new.
    pub fn stop(&self) {
        self.over.send_replace(true);
    }

    /// Whether no client is to begin anything new.
    #[must_use]
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }
}
