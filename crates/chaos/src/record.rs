//! What a run leaves behind beside its history: `faults.jsonl`, a [`FaultRecord`] per line, and
//! `report.json`, one [`Report`]. All times are nanoseconds of CLOCK_BOOTTIME, as in the history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A span of time, in nanoseconds of CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Its first instant.
    pub begin_ns: u64,
    /// The instant behind its last.
    pub end_ns: u64,
}

/// One fault: what was planned, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its number in the schedule, from 1.
    pub id: u32,
    /// The kind, as `--faults` names it: `partition`, `kill`, …
    pub kind: String,
    /// What was done, for people: `n2, which led, is cut off from n1 and n3`.
    pub what: String,
    /// The nodes that it hit, by name.
    pub nodes: Vec<String>,
    /// The clients that it hit, by name.
    pub clients: Vec<String>,
    /// When it was to be.
    pub planned: Interval,
    /// When it was; absent if it was never begun.
    pub effective: Option<Interval>,
    /// Whether it was seen to have had an effect.
    pub took_effect: bool,
    /// What was counted: `dropped`, `delayed`, `duplicated`, `reordered` packets, …
    pub counters: BTreeMap<String, u64>,
    /// How the effect was seen, or why there was none.
    pub note: String,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every promise was kept, and the run has seen enough to say so.
    Valid,
    /// A promise was broken.
    Invalid,
    /// No promise was seen broken, but the run has not shown what it was to show.
    Unknown,
}

impl Verdict {
    /// How the process ends: 0, 1 or 2.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Invalid => 1,
            Self::Unknown => 2,
        }
    }

    /// As `report.json` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Unknown => "unknown",
        }
    }
}

/// A fault kind on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityRecord {
    /// What is needed, or the kind of fault.
    pub name: String,
    /// Whether it can be had.
    pub available: bool,
    /// How, or why not.
    pub why: String,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationRecord {
    /// Its number in the contract, `I1`, or a word.
    pub invariant: String,
    /// What happened, for people.
    pub what: String,
    /// When it was seen, if it has a time.
    pub at_ns: Option<u64>,
    /// The lease, if it concerns one.
    pub lease: Option<String>,
}

/// Writes that were offered to a set of stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    /// Offered, stale or not.
    pub attempted: u64,
    /// Done.
    pub admitted: u64,
    /// Offered with a token below one that the store had admitted.
    pub stale_attempted: u64,
    /// Of these: rejected by the guard.
    pub stale_refused: u64,
    /// Of these: done. Must be 0 where there is a guard.
    pub stale_admitted: u64,
    /// Confirmed writes that the store no longer shows. Must be 0 where there is a guard.
    pub lost_updates: u64,
}

/// What the run has reached; a run that has not reached enough is `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Leaders that followed another.
    pub leader_changes: u64,
    /// Sessions that ended without their client's doing.
    pub expiries: u64,
    /// Grants that passed from a holder to the next in the queue.
    pub hand_overs: u64,
    /// Faults of each kind that took effect.
    pub effective: BTreeMap<String, u64>,
    /// Faults of each kind that did not.
    pub without_effect: BTreeMap<String, u64>,
    /// Operations by kind and how they ended: `acquire` → `ok`, `refused`, `unknown`.
    pub operations: BTreeMap<String, BTreeMap<String, u64>>,
}

/// `report.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Valid, invalid or unknown.
    pub verdict: Verdict,
    /// Why, in sentences; for `valid` what was checked.
    pub reasons: Vec<String>,
    /// What was broken.
    pub violations: Vec<ViolationRecord>,
    /// The seed of the schedule.
    pub seed: u64,
    /// First members of the cluster; 0 if it was not started by the run.
    pub nodes: u32,
    /// Clients.
    pub clients: u32,
    /// From the first operation to the last.
    pub ran: Interval,
    /// The wall clock at its begin, in milliseconds since the Unix epoch, for people.
    pub began_unix_ms: u64,
    /// What this machine offers.
    pub capabilities: Vec<CapabilityRecord>,
    /// What was reached.
    pub coverage: Coverage,
    /// Writes to guarded stores, by store.
    pub guarded: BTreeMap<String, WriteCounts>,
    /// The same writes, offered to a copy without a guard; absent without `--control`.
    pub unguarded: Option<WriteCounts>,
    /// The longest time from the end of a fault to the next operation that succeeded, in
    /// milliseconds.
    pub slowest_recovery_ms: u64,
    /// Runs the same schedule again.
    pub reproduce: String,
}
