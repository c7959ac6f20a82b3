//! The history as it comes in: written down, and counted for the line that shows what goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::Path;

use ringfence_check::history::{
    Admission, GuardAct, Header, Op, Outcome, Record, WatchCause, WatchKind, Writer,
};

use crate::record::WriteCounts;

/// Counts, and the file behind them.
#[derive(Debug)]
pub(crate) struct Tally {
    writer: Writer<File>,
    /// The first thing that the file system refused.
    pub(crate) broken: Option<io::Error>,
    /// Lines of clients that made no sense.
    pub(crate) unreadable: u64,
    under_way: HashMap<u64, (&'static str, u64)>,
    pub(crate) answered: u64,
    pub(crate) operations: BTreeMap<String, BTreeMap<String, u64>>,
    /// When an acquire began and when it was granted.
    pub(crate) grants: Vec<(u64, u64)>,
    /// By store: offered, admitted, and refused as stale.
    pub(crate) writes: BTreeMap<String, WriteCounts>,
    /// Acknowledged commits of guarded stores: store, lease, place, token.
    pub(crate) commits: Vec<(String, String, u64, u64)>,
    expired: BTreeSet<u64>,
    ends: HashMap<String, (u64, u64)>,
    handed_over: BTreeSet<u64>,
}

impl Tally {
    pub(crate) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Ok(Self {
            writer: Writer::create(path, header)?,
            broken: None,
            unreadable: 0,
            under_way: HashMap::new(),
            answered: 0,
            operations: BTreeMap::new(),
            grants: Vec::new(),
            writes: BTreeMap::new(),
            commits: Vec::new(),
            expired: BTreeSet::new(),
            ends: HashMap::new(),
            handed_over: BTreeSet::new(),
        })
    }

    /// Writes a record down and counts it.
    pub(crate) fn take(&mut self, record: Record) {
        if let Err(cause) = self.writer.append(&record) {
            self.broken.get_or_insert(cause);
        }
        match record {
            Record::Invoked(invoked) => {
                self.under_way
                    .insert(invoked.id, (kind(&invoked.op), invoked.t));
            }
            Record::Returned(returned) => {
                let Some((kind, begun)) = self.under_way.remove(&returned.id) else {
                    return;
                };
                self.answered += 1;
                let ended = sort(&returned.outcome);
                let counts = self.operations.entry(kind.to_owned()).or_default();
                *counts.entry(ended.to_owned()).or_default() += 1;
                if matches!(returned.outcome, Outcome::Granted { .. }) {
                    self.grants.push((begun, returned.t));
                }
            }
            Record::Guard(guard) => {
                let counts = self.writes.entry(guard.store.clone()).or_default();
                if guard.act != GuardAct::Write {
                    return;
                }
                counts.attempted += 1;
                match guard.admission {
                    Admission::Admitted => counts.admitted += 1,
                    Admission::Refused { .. } => {
                        counts.stale_attempted += 1;
                        counts.stale_refused += 1;
                    }
                    Admission::Unknown | Admission::Failed => {}
                }
                if let (Admission::Admitted, Some(place)) = (guard.admission, guard.commit) {
                    self.commits
                        .push((guard.store, guard.lease, place, guard.token));
                }
            }
            Record::WatchEvent(event) => match event.kind {
                WatchKind::Ended(cause) => {
                    if cause == WatchCause::Expired {
                        self.expired.extend(event.session);
                    }
                    self.ends.insert(event.lease, (event.index, event.token));
                }
                WatchKind::Granted => {
                    let end = self.ends.get(&event.lease);
                    if end.is_some_and(|(index, _)| *index == event.index) {
                        self.handed_over.insert(event.token);
                    }
                }
            },
            _ => {}
        }
    }

    /// Stale writes that guards have refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.writes
            .values()
            .map(|counts| counts.stale_refused)
            .sum()
    }

    /// Sessions that were seen to run out of time.
    pub(crate) fn expiries(&self) -> u64 {
        self.expired.len() as u64
    }

    /// Grants that the end of another brought about in the same step.
    pub(crate) fn hand_overs(&self) -> u64 {
        self.handed_over.len() as u64
    }

    /// Hands everything over so far.
    pub(crate) fn hand_over(&mut self) {
        if let Err(cause) = self.writer.flush() {
            self.broken.get_or_insert(cause);
        }
    }

    /// Hands everything over.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(cause) = self.broken.take() {
            return Err(cause);
        }
        self.writer.flush()
    }
}

fn kind(op: &Op) -> &'static str {
    match op {
        Op::Open { .. } => "open",
        Op::Acquire(_) => "acquire",
        Op::Cancel { .. } => "cancel",
        Op::Release { .. } => "release",
        Op::Transfer { .. } => "transfer",
        Op::Close => "close",
        Op::Check { .. } => "check",
        Op::Get { .. } => "get",
        Op::Revoke { .. } => "revoke",
        Op::Evict { .. } => "evict",
    }
}

fn sort(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Unknown { .. } => "unknown",
        Outcome::NotDone { .. } => "not done",
        Outcome::Ended { .. }
        | Outcome::TimedOut
        | Outcome::Held { .. }
        | Outcome::Queued { .. }
        | Outcome::Blocked(_)
        | Outcome::StaleToken { .. }
        | Outcome::NotHolder
        | Outcome::NotWaiting
        | Outcome::SessionExpired
        | Outcome::Refused { .. } => "refused",
        Outcome::Done
        | Outcome::Opened { .. }
        | Outcome::Granted { .. }
        | Outcome::Cancelled
        | Outcome::Removed
        | Outcome::StillGranted { .. }
        | Outcome::Settled
        | Outcome::Voided
        | Outcome::Released
        | Outcome::Transferred { .. }
        | Outcome::Closed
        | Outcome::Checked(_)
        | Outcome::Lease { .. } => "ok",
    }
}
