//! What a run is given.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringfence_client::Tls;
use serde::{Deserialize, Serialize};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Groups of nodes cannot reach each other: two sides, a bridge, a ring.
    Partition,
    /// What a node sends is lost, or what is sent to it.
    Oneway,
    /// A node, or a client, is cut off from all others.
    Isolate,
    /// A node is killed with SIGKILL and started again.
    Kill,
    /// A node, or a client, is stopped with SIGSTOP for a while.
    Pause,
    /// A node's disk loses its power, is full, or ends in a torn write.
    Disk,
    /// Packets are late, lost, doubled or out of order; lines are slow.
    Slow,
    /// A member is added and removed, or replaced.
    Membership,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Partition,
        Self::Oneway,
        Self::Isolate,
        Self::Kill,
        Self::Pause,
        Self::Disk,
        Self::Slow,
        Self::Membership,
    ];

    /// As `--faults` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Oneway => "oneway",
            Self::Isolate => "isolate",
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Disk => "disk",
            Self::Slow => "slow",
            Self::Membership => "membership",
        }
    }

    /// Whether it is made of packets, so that it needs the switch.
    #[must_use]
    pub const fn needs_network(self) -> bool {
        matches!(
            self,
            Self::Partition | Self::Oneway | Self::Isolate | Self::Slow
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{offered:?} is no fault; allowed are partition, oneway, isolate, kill, pause, disk, slow and \
     membership"
)]
pub struct NoSuchKind {
    /// What was given.
    pub offered: String,
}

impl FromStr for Kind {
    type Err = NoSuchKind;

    fn from_str(raw: &str) -> Result<Self, NoSuchKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == raw);
        found.ok_or_else(|| NoSuchKind {
            offered: raw.to_owned(),
        })
    }
}

/// A cluster that the run did not start.
#[derive(Clone, Debug)]
pub struct Target {
    /// Client addresses of its nodes.
    pub endpoints: Vec<String>,
    /// Called with `begin` or `heal` and the kind of the fault: `CMD begin partition`. Without it
    /// nothing is disturbed.
    pub hook: Option<String>,
    /// How it is connected to, if with TLS.
    pub tls: Option<Tls>,
    /// What says the same to a client's process: variables of its environment.
    pub environment: Vec<(&'static str, String)>,
}

/// Everything that a run is given.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary whose `serve`, `cluster`, `chaos-client` and `chaos-sweep` are run.
    pub program: PathBuf,
    /// First members, 3 to 9.
    pub nodes: u32,
    /// Clients, 1 to 32.
    pub clients: u32,
    /// Programs of clients in other languages, run by a shell with the arguments of `chaos-client`:
    /// they take the place of the last of the clients.
    pub foreign: Vec<String>,
    /// How long the workload lasts.
    pub duration: Duration,
    /// Fixes the schedule of faults, and the clients' dice.
    pub seed: u64,
    /// The kinds of faults; for a [`Target`] with a hook whatever words it understands.
    pub faults: Vec<Kind>,
    /// Whether the kinds were named, so that one that is not to be had makes the run
    /// inconclusive.
    pub named: bool,
    /// Where the report goes.
    pub report: PathBuf,
    /// A schedule to replay.
    pub schedule: Option<PathBuf>,
    /// Faults may overlap and leave no majority.
    pub break_quorum: bool,
    /// Whether each write is also offered to a store without a guard.
    pub control: bool,
    /// A cluster that is there already.
    pub target: Option<Target>,
    /// Planted: the guard in SQLite admits every token.
    pub open_guard: bool,
}

/// The fewest and the most first members.
pub const NODES: std::ops::RangeInclusive<u32> = 3..=9;
/// The fewest and the most clients.
pub const CLIENTS: std::ops::RangeInclusive<u32> = 1..=32;

impl Plan {
    /// How many leases the clients contend for: two clients to each.
    #[must_use]
    pub fn leases(&self) -> u32 {
        self.clients.div_ceil(2).max(1)
    }
}
