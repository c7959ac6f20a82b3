//! A backup: what a restored cluster needs of the one before it, as plain records.
//!
//! It is less than a snapshot. Sessions, grants and queues do not survive a restore, so they are left
//! out, and with them every secret: secrets of sessions and digests of cluster tokens never get into a
//! backup.

mod digest;

use alloc::vec::Vec;
use core::fmt;

use crate::access::change::BANS_MAX;
use crate::access::rules::RULES_MAX;
use crate::access::{Access, AccessRecord};
use crate::id::{ClusterId, FencingToken};
use crate::name::LeaseName;
use crate::pod::Pod;
use crate::settings::{LINEAGE_MAX, Settings};
use crate::time::{ClusterTime, Millis, WallTime};
use crate::tokens::TokenCounter;

pub use digest::{BackupDigest, InvalidDigest};

/// One record of a backup: the header first, then rights, floors, and names held by Pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackupRecord {
    /// What there is once.
    Header(BackupHeader),
    /// A part of who may do what; never a cluster token.
    Access(AccessRecord),
    /// The greatest token granted for a name; in the order of the names.
    Floor {
        /// The lease.
        name: LeaseName,
        /// Its floor.
        token: FencingToken,
    },
    /// A name that a Pod-bound session holds; in the order of the names.
    HeldByPod(HeldByPod),
}

/// A name that a Pod-bound session holds. Such a session has no TTL, so quiet time does not cover it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldByPod {
    /// The lease.
    pub name: LeaseName,
    /// The token of the grant.
    pub token: FencingToken,
    /// The Pod of the holder.
    pub pod: Pod,
}

/// What there is once in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackupHeader {
    /// The cluster.
    pub cluster: ClusterId,
    /// The clusters that it was restored from, the newest last; at most [`LINEAGE_MAX`].
    pub lineage: Vec<ClusterId>,
    /// The newest applied entry.
    pub index: u64,
    /// The newest term that was opened.
    pub term: u64,
    /// Cluster time.
    pub time: ClusterTime,
    /// The greatest wall time seen.
    pub wall: WallTime,
    /// The level.
    pub level: u32,
    /// The settings in force.
    pub settings: Settings,
    /// The entry that set them.
    pub settings_set_at: u64,
    /// Where the tokens have come to.
    pub tokens: TokenCounter,
    /// The token floor that the cluster was formed with.
    pub token_floor: Option<u64>,
    /// The greatest floor forgotten, if any.
    pub forgotten: Option<FencingToken>,
    /// The greatest TTL of a living session; 0 if there is none. Pod-bound sessions have none.
    pub ttl_greatest: Millis,
    /// The number of the next session.
    pub next_session: u64,
    /// The newest version of a Lease object, 0 before the first.
    pub versions: u64,
}

/// A backup that was read, all of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupContents {
    /// What there is once.
    pub header: BackupHeader,
    /// Who may do what, as [`BackupRecord::Access`] has it.
    pub access: Vec<AccessRecord>,
    /// How many names have a floor. Their tokens are checked and not kept: a restored cluster raises
    /// all floors beyond the greatest token.
    pub floors: u64,
    /// The names that Pod-bound sessions hold.
    pub pods: Vec<HeldByPod>,
}

/// Records that make no backup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadBackup {
    /// The number of the first record that does not fit, from 0.
    pub record: u64,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for BadBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the backup {}", self.record, self.why)
    }
}

impl core::error::Error for BadBackup {}

impl BackupContents {
    /// What these records describe.
    ///
    /// # Errors
    /// [`BadBackup`] if they contradict each other or are out of order.
    pub fn from_records(
        records: impl IntoIterator<Item = BackupRecord>,
    ) -> Result<Self, BadBackup> {
        let mut records = records.into_iter();
        let Some(BackupRecord::Header(header)) = records.next() else {
            let why = "is not a header";
            return Err(BadBackup { record: 0, why });
        };
        let at_header = |why| BadBackup { record: 0, why };
        header.check().map_err(at_header)?;
        let mut reading = Reading::default();
        let (mut access, mut pods) = (Vec::new(), Vec::new());
        for (at, record) in (1..).zip(records) {
            let kept = reading.next(&header, &record);
            kept.map_err(|why| BadBackup { record: at, why })?;
            match record {
                BackupRecord::Access(part) => access.push(part),
                BackupRecord::HeldByPod(held) => pods.push(held),
                BackupRecord::Header(_) | BackupRecord::Floor { .. } => {}
            }
        }
        Access::restore(access.clone()).map_err(at_header)?;
        Ok(Self {
            header,
            access,
            floors: reading.floors,
            pods,
        })
    }
}

impl BackupHeader {
    fn check(&self) -> Result<(), &'static str> {
        if self.lineage.len() > LINEAGE_MAX {
            return Err("has more clusters before it than a lineage may have");
        }
        if self.lineage.contains(&self.cluster) {
            return Err("has its own cluster among those before it");
        }
        if self.settings.check().is_err() {
            return Err("has a setting outside its range");
        }
        let reached = self.tokens.reached();
        if self.tokens.granted() > reached || reached > FencingToken::MAX {
            return Err("has granted tokens beyond its counter, or a counter beyond all tokens");
        }
        match self.forgotten {
            Some(floor) if floor.get() > self.tokens.granted() => {
                Err("has forgotten a floor that was never granted")
            }
            _ => Ok(()),
        }
    }
}

/// How many records of rights there may be. The mode is one of them.
const RIGHTS_MAX: usize = RULES_MAX + BANS_MAX + 1;

/// How far a backup was read.
#[derive(Default)]
struct Reading {
    rights: usize,
    floors: u64,
    last_floor: Option<LeaseName>,
    last_held: Option<LeaseName>,
}

impl Reading {
    fn next(&mut self, header: &BackupHeader, record: &BackupRecord) -> Result<(), &'static str> {
        let granted = |token: FencingToken| token.get() <= header.tokens.granted();
        match record {
            BackupRecord::Header(_) => Err("is a second header"),
            BackupRecord::Access(AccessRecord::Token { .. }) => {
                Err("is a cluster token, which no backup holds")
            }
            BackupRecord::Access(_) if self.floors > 0 || self.last_held.is_some() => {
                Err("is a right behind the floors")
            }
            // All of them are kept, and read before the digest is known.
            BackupRecord::Access(_) => {
                self.rights += 1;
                match self.rights > RIGHTS_MAX {
                    true => Err("is one right more than a cluster may have"),
                    false => Ok(()),
                }
            }
            BackupRecord::Floor { .. } if self.last_held.is_some() => {
                Err("is a floor behind names that Pods hold")
            }
            BackupRecord::Floor { name, token } => {
                if !granted(*token) {
                    return Err("is a floor that was never granted");
                }
                self.floors += 1;
                in_order(&mut self.last_floor, name)
            }
            BackupRecord::HeldByPod(held) => {
                if !granted(held.token) {
                    return Err("is held under a token that was never granted");
                }
                in_order(&mut self.last_held, &held.name)
            }
        }
    }
}

fn in_order(last: &mut Option<LeaseName>, name: &LeaseName) -> Result<(), &'static str> {
    if last.as_ref().is_some_and(|last| last >= name) {
        return Err("is a name out of order");
    }
    *last = Some(name.clone());
    Ok(())
}
