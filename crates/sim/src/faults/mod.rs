//! The rows of the fault matrix as data: what is done to whom, from when to when.
//!
//! | rows | what | file |
//! |------|------|------|
//! | N1 to N10 | the network | `network.rs` |
//! | P1 to P4 | processes | `process.rs` |
//! | C1 to C4 | clocks | `clocks.rs` |
//! | D1 to D12 | disks | `disks.rs` |
//! | M1, M2, M4, M5, M7 | members | `members.rs`, `changes.rs` |
//! | R1, R3, R4 | all disks at once: an older copy, a backup, what a survivor holds | `disks.rs`, `restore.rs` |
//! | M3, M6, M8 | snapshots and those that need one | `transfers.rs` |
//!
//! `schedule.rs` draws a plan of them from a seed, `stage.rs` makes them.
//!
//! C4, clocks that are days apart, is the normal state here: every machine was booted at another time.
//! Some faults need more than their time has to offer, such as a snapshot under way that can be broken
//! off; [`Observation::Took`](crate::observe::Observation::Took) says that one came about.
//!
//! Not injected: D4, a flipped bit, which a node refuses to start from, so that nothing would be left
//! to look at (the log's own tests flip every bit); D9, a disk that forgets what it has said is
//! flushed, which no promise outlives everywhere; P5, a panic, since the one process of a simulation
//! would die with it; what it leaves behind is that of P1. U1, U2, R1 and R2 are about real processes and files. N8 and N9 are about
//! connections, which are streams of messages here: they are cut and frozen as such.

mod changes;
mod clocks;
mod disks;
mod members;
mod network;
mod process;
mod restore;
mod schedule;
mod stage;
mod transfers;

use std::time::Duration;

pub use schedule::{Frame, HANGS, Scheduled, schedule};
pub use stage::Stage;

/// To which node something is done. A role is looked up when the fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The node that leads then; node 0 if none does.
    Leader,
    /// The node so many places behind the leader.
    Behind(usize),
}

/// What is done. The name of a row of the fault matrix stands before each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// N1: a minority is split from the majority; clients reach both.
    Split {
        /// Who is in the minority with those behind it.
        from: Who,
    },
    /// N2: one node reaches no node and is reached by no node of the cluster.
    Isolate(Who),
    /// N3: a node's messages arrive, and nothing arrives at it.
    Deaf(Who),
    /// N4: everything arrives at a node, and its own messages do not arrive.
    Mute(Who),
    /// N5: two halves see one node in the middle, and not each other.
    Bridge {
        /// The node that both see.
        hub: Who,
    },
    /// N5: every node sees a majority, each another one.
    Ring,
    /// N6: the links of a node come and go.
    Flap {
        /// The node whose links these are.
        who: Who,
        /// How long they are there, and how long they are not.
        period: Duration,
    },
    /// N7: all links are slow, jitter, lose, double and reorder.
    BadWeather {
        /// The delay, one way.
        delay: Duration,
        /// How much longer single messages take at most; they overtake each other.
        jitter: Duration,
        /// Messages lost, of a thousand.
        loss_per_mille: u16,
        /// Messages doubled, of a thousand.
        double_per_mille: u16,
    },
    /// N8: connections to a node stay open and carry nothing.
    HalfOpen(Who),
    /// N9: all streams of clients are reset, again and again.
    Resets {
        /// How often.
        every: Duration,
    },
    /// N10: a client is cut off from all nodes.
    CutClient {
        /// Which client.
        client: usize,
    },
    /// P1: a node's process is killed and started again.
    Kill(Who),
    /// P1: all nodes' processes are killed at once and started again.
    KillAll,
    /// P1: nodes are killed in turn, again and again.
    KillLoop {
        /// How often.
        every: Duration,
    },
    /// P2: a node's process stands still, and goes on.
    Pause(Who),
    /// P3: a client's process stands still, and goes on.
    PauseClient {
        /// Which client.
        client: usize,
    },
    /// P3: a client's process is killed; another one comes up in its place.
    KillClient {
        /// Which client.
        client: usize,
    },
    /// P4: a node runs for a tenth of the time only, in slices.
    Starve(Who),
    /// C1: a node's wall clock jumps, there and back.
    WallJump {
        /// The node whose clock it is.
        who: Who,
        /// By how much, in milliseconds.
        millis: i64,
    },
    /// C2: a node's clocks run at another rate.
    NodeRate {
        /// The node whose clocks these are.
        who: Who,
        /// By how many parts per million too fast; negative if too slow.
        ppm: i32,
    },
    /// C2: a client's clocks run at another rate.
    ClientRate {
        /// Which client.
        client: usize,
        /// By how many parts per million too fast; negative if too slow.
        ppm: i32,
    },
    /// C3: a node's machine is suspended: its boot clock runs, its timers do not.
    Suspend(Who),
    /// C3: a client's machine is suspended.
    SuspendClient {
        /// Which client.
        client: usize,
    },
    /// D1: the next sync of a node's disk fails; the node ends and is started again.
    SyncFails(Who),
    /// D2: a node loses power, and with it what it had not synced.
    PowerLoss(Who),
    /// D2: all nodes lose power at once.
    PowerLossAll {
        /// For how long no disk has kept anything by then: what was acknowledged too early is lost
        /// everywhere.
        behind: Duration,
    },
    /// D3: a node loses power in the middle of its writes.
    TornWrites(Who),
    /// D5: a node's disk is full for a while.
    DiskFull(Who),
    /// D6: a node's disk stands still for a while.
    DiskStalls(Who),
    /// D7: a node's disk is wiped; it comes back under its name, empty.
    Wipe(Who),
    /// D8: a node loses power again while it recovers.
    CrashInRecovery(Who),
    /// D10: the folder of a node's log is emptied. The node does not start, and after a while its
    /// whole disk is wiped.
    EmptiedLog(Who),
    /// D11: the leader's disk hangs for minutes.
    LeaderDiskHangs,
    /// D12: no node has room for a snapshot, and all have room for more log.
    NoRoomForSnapshots,
    /// All disks are set back to an older copy.
    RollBackAll,
    /// R3: a backup is taken; later all disks are lost, and the cluster is restored from it.
    Restore {
        /// How old the backup is when the disks are lost.
        age: Duration,
    },
    /// R4: all disks but one are lost, and the cluster is restored from what that one holds.
    Recover(Who),
    /// M1: a node joins, gets a vote, and another one is removed.
    Replace(Who),
    /// M1: leadership is handed over.
    HandOver,
    /// M2: the same as M1 while a node is isolated.
    ReplaceInSplit(Who),
    /// M3: a node is down for so long that it can only be caught up by a snapshot.
    LeftBehind(Who),
    /// M4: a change of the voters ends between its two steps: a new node is to take a vote over.
    InterruptedChange {
        /// Whose vote.
        who: Who,
        /// Whether the leader is killed at that moment. Otherwise it has to finish the change.
        kill: bool,
    },
    /// M5: as many voters as may be are down, and a live one is removed.
    RemoveBesideDead(Who),
    /// M6: a snapshot is broken off on its way.
    CancelledTransfer {
        /// Who is to receive it.
        who: Who,
        /// Whether its sender is killed. Otherwise the network is cut.
        kill: bool,
    },
    /// M7: a node joins before anything is written to the new cluster.
    JoinFirst {
        /// Whether a follower is cut off meanwhile and needs a snapshot afterwards.
        lags: bool,
    },
    /// M8: in the middle of another fault a follower comes back that can only be caught up by a
    /// snapshot.
    Laggard {
        /// What happens meanwhile.
        during: Box<Fault>,
    },
}

/// All rows that schedules draw, in order. R3 and R4 have runs of their own: behind them nothing is
/// granted for longer than a run lasts.
pub const ROWS: [&str; 36] = [
    "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8", "N9", "N10", "P1", "P2", "P3", "P4", "C1",
    "C2", "C3", "D1", "D2", "D3", "D5", "D6", "D7", "D8", "D10", "D11", "D12", "M1", "M2", "M3",
    "M4", "M5", "M6", "M7", "M8", "R1",
];

impl Fault {
    /// The row of the matrix that it belongs to.
    #[must_use]
    pub const fn row(&self) -> &'static str {
        match self {
            Self::Split { .. } => "N1",
            Self::Isolate(_) => "N2",
            Self::Deaf(_) => "N3",
            Self::Mute(_) => "N4",
            Self::Bridge { .. } | Self::Ring => "N5",
            Self::Flap { .. } => "N6",
            Self::BadWeather { .. } => "N7",
            Self::HalfOpen(_) => "N8",
            Self::Resets { .. } => "N9",
            Self::CutClient { .. } => "N10",
            Self::Kill(_) | Self::KillAll | Self::KillLoop { .. } => "P1",
            Self::Pause(_) => "P2",
            Self::PauseClient { .. } | Self::KillClient { .. } => "P3",
            Self::Starve(_) => "P4",
            Self::WallJump { .. } => "C1",
            Self::NodeRate { .. } | Self::ClientRate { .. } => "C2",
            Self::Suspend(_) | Self::SuspendClient { .. } => "C3",
            Self::SyncFails(_) => "D1",
            Self::PowerLoss(_) | Self::PowerLossAll { .. } => "D2",
            Self::TornWrites(_) => "D3",
            Self::DiskFull(_) => "D5",
            Self::DiskStalls(_) => "D6",
            Self::Wipe(_) => "D7",
            Self::CrashInRecovery(_) => "D8",
            Self::EmptiedLog(_) => "D10",
            Self::LeaderDiskHangs => "D11",
            Self::NoRoomForSnapshots => "D12",
            Self::RollBackAll => "R1",
            Self::Restore { .. } => "R3",
            Self::Recover(_) => "R4",
            Self::Replace(_) | Self::HandOver => "M1",
            Self::ReplaceInSplit(_) => "M2",
            Self::LeftBehind(_) => "M3",
            Self::InterruptedChange { .. } => "M4",
            Self::RemoveBesideDead(_) => "M5",
            Self::CancelledTransfer { .. } => "M6",
            Self::JoinFirst { .. } => "M7",
            Self::Laggard { .. } => "M8",
        }
    }

    /// Whether what a disk held is lost for good.
    #[must_use]
    pub fn loses_a_disk(&self) -> bool {
        match self {
            Self::Wipe(_) | Self::EmptiedLog(_) | Self::RollBackAll => true,
            Self::Restore { .. } | Self::Recover(_) => true,
            Self::Laggard { during } => during.loses_a_disk(),
            _ => false,
        }
    }
}
