//! What the stores themselves say: in which order they committed, and whose tokens.

use crate::record::ViolationRecord;
use crate::stage::Stage;
use crate::workload::{Entry, MEMORY, SQLITE, UNGUARDED, databases, read_journal};

use super::{Findings, Writes};

/// The most commits of one kind that are named; the rest is counted.
const NAMED_MAX: usize = 5;

/// The journal of one lease's data in one store.
struct Journal {
    store: &'static str,
    lease: String,
    entries: Vec<Entry>,
}

/// Looks at every journal: stale writes that were let in, and writes that were lost.
pub(super) fn judge(stage: &Stage, writes: &mut Writes, findings: &mut Findings) {
    let mut journals = Vec::new();
    for store in [SQLITE, UNGUARDED] {
        match in_files(stage, store) {
            Ok(found) => journals.extend(found),
            Err(why) => findings.open.push(why),
        }
    }
    for (lease, entries) in stage.memory.journals() {
        journals.push(Journal {
            store: MEMORY,
            lease,
            entries,
        });
    }
    let mut commits = 0;
    for journal in &journals {
        let guarded = journal.store != UNGUARDED;
        let read = journal.read();
        commits += journal.entries.len();
        let counts = writes.entry(journal.store.to_owned()).or_default();
        counts.stale_attempted += read.stale.len() as u64;
        counts.stale_admitted += read.stale.len() as u64;
        counts.lost_updates += read.lost.len() as u64;
        if guarded {
            for what in read.stale.iter().take(NAMED_MAX) {
                findings.broken("I1", journal, what);
            }
            for what in read.lost.iter().take(NAMED_MAX) {
                findings.broken("no lost update", journal, what);
            }
        }
    }
    acknowledged(stage, &journals, findings);
    findings.looked_at.push(format!(
        "read {commits} commits in the journals of the stores"
    ));
}

impl Findings {
    fn broken(&mut self, invariant: &str, journal: &Journal, what: &str) {
        self.violations.push(ViolationRecord {
            invariant: invariant.to_owned(),
            what: format!("store {}, lease {}: {what}", journal.store, journal.lease),
            at_ns: None,
            lease: Some(journal.lease.clone()),
        });
    }
}

fn in_files(stage: &Stage, store: &'static str) -> Result<Vec<Journal>, String> {
    let dir = stage.scratch.path("stores").join(store);
    let found = databases(&dir).map_err(|cause| format!("store {store}: {cause}"))?;
    let read = found.into_iter().map(|(lease, path)| {
        let entries = read_journal(&path);
        let entries = entries.map_err(|cause| format!("{}: {cause}", path.display()))?;
        Ok(Journal {
            store,
            lease,
            entries,
        })
    });
    read.collect()
}

/// What a journal shows that should not be.
struct Read {
    /// Commits with a token below an earlier one.
    stale: Vec<String>,
    /// Commits that overwrote what they had not seen.
    lost: Vec<String>,
}

impl Journal {
    fn read(&self) -> Read {
        let (mut stale, mut lost) = (Vec::new(), Vec::new());
        let (mut mark, mut amount) = (0, 0);
        for entry in &self.entries {
            let place = entry.place;
            if entry.token < mark && entry.amount.is_some() {
                let token = entry.token;
                stale.push(format!(
                    "commit {place} was let in with token {token}, after token {mark}"
                ));
            }
            mark = mark.max(entry.token);
            let Some(written) = entry.amount else {
                continue;
            };
            if written <= amount {
                lost.push(format!(
                    "commit {place} set {written} where {amount} had been confirmed"
                ));
            }
            amount = written;
        }
        Read { stale, lost }
    }
}

/// Whatever was confirmed to a client stands in the journal.
fn acknowledged(stage: &Stage, journals: &[Journal], findings: &mut Findings) {
    let tally = super::lock(stage);
    for (store, lease, place, token) in &tally.commits {
        let journal = journals
            .iter()
            .find(|journal| journal.store == store && journal.lease == *lease);
        let there = journal.is_some_and(|journal| {
            let index = journal
                .entries
                .binary_search_by_key(place, |entry| entry.place);
            index.is_ok_and(|index| journal.entries[index].token == *token)
        });
        if !there {
            findings.open.push(format!(
                "store {store} confirmed commit {place} of lease {lease} and does not have it: \
                 the workload's own store is broken"
            ));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal of (token, amount); no amount is an advance.
    fn journal(entries: &[(u64, Option<i64>)]) -> Read {
        let entries = entries.iter().zip(1..);
        let entries = entries.map(|(&(token, amount), place)| Entry {
            place,
            token,
            amount,
        });
        Journal {
            store: SQLITE,
            lease: "db".to_owned(),
            entries: entries.collect(),
        }
        .read()
    }

    #[test]
    fn holders_one_after_the_other_lose_nothing() {
        let read = journal(&[
            (3, None),
            (3, Some(1)),
            (3, Some(2)),
            (7, None),
            (7, Some(3)),
            (7, Some(4)),
        ]);
        assert_eq!((read.stale.len(), read.lost.len()), (0, 0));
    }

    #[test]
    fn a_write_below_an_advance_is_stale_also_before_the_new_holder_wrote() {
        let read = journal(&[(3, None), (3, Some(1)), (7, None), (3, Some(2))]);
        assert_eq!((read.stale.len(), read.lost.len()), (1, 0));
    }

    #[test]
    fn a_write_that_had_not_seen_the_last_one_loses_it() {
        let read = journal(&[(3, Some(1)), (7, Some(2)), (7, Some(3)), (3, Some(2))]);
        assert_eq!((read.stale.len(), read.lost.len()), (1, 1));
    }
}
