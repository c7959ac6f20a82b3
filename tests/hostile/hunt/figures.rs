//! What a hunt counts, and what it found.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The most findings that are kept; the rest is counted.
const FINDINGS_MAX: usize = 25;
/// The longest text of a finding, in characters.
const FINDING_MAX: usize = 2_000;

/// Counts by what was done and what came of it, and what should not have come of it.
#[derive(Default)]
pub(super) struct Figures {
    counts: Mutex<BTreeMap<(String, String), u64>>,
    findings: Mutex<(Vec<String>, usize)>,
}

impl Figures {
    /// Counts one more.
    pub(super) fn count(&self, what: &str, came: &str) {
        let mut counts = self.counts.lock().unwrap();
        let key = (what.to_owned(), came.to_owned());
        *counts.entry(key).or_default() += 1;
    }

    /// Notes what a promise excludes.
    pub(super) fn found(&self, what: &str) {
        let mut findings = self.findings.lock().unwrap();
        if findings.0.len() < FINDINGS_MAX {
            findings.0.push(what.chars().take(FINDING_MAX).collect());
        } else {
            findings.1 += 1;
        }
    }

    /// How many there are of what begins so.
    pub(super) fn total(&self, what: &str, came: &str) -> u64 {
        let counts = self.counts.lock().unwrap();
        let of = counts
            .iter()
            .filter(|((done, became), _)| done.starts_with(what) && became.starts_with(came));
        of.map(|(_, count)| count).sum()
    }

    /// Prints all counts.
    pub(super) fn show(&self) {
        let counts = self.counts.lock().unwrap();
        let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((what, came), count) in counts.iter() {
            let line = lines.entry(what).or_default();
            line.push(format!("{count} {came}"));
        }
        for (what, came) in lines {
            println!("  {what}: {}", came.join(", "));
        }
    }

    /// Fails with everything that was found.
    pub(super) fn assert_nothing_was_found(&self, seed: u64) {
        let findings = self.findings.lock().unwrap();
        let (found, more) = (&findings.0, findings.1);
        assert!(
            found.is_empty(),
            "seed {seed}: {} findings:\n{}",
            found.len() + more,
            found.join("\n")
        );
    }
}
