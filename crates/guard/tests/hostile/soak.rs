//! Hostile writes in great number, and the sum of what became of them.

use std::env;
use std::fmt;

/// How many writes a run makes per store, unless `RINGFENCE_HOSTILE_WRITES` says otherwise.
const WRITES: u64 = 2_000;

/// How many hostile writes to make.
pub(crate) fn writes() -> u64 {
    match env::var("RINGFENCE_HOSTILE_WRITES") {
        Err(_) => WRITES,
        Ok(text) => text.parse().unwrap_or_else(|_| {
            panic!("RINGFENCE_HOSTILE_WRITES: got {text:?}, expected a number of writes")
        }),
    }
}

/// What became of the writes of a run. The last three must be 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) writes: u64,
    /// Writes under a token that was stale.
    pub(crate) stale: u64,
    pub(crate) committed: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    /// Unknown outcomes that turned out to be committed.
    pub(crate) committed_unknown: u64,
    /// Writes of stale holders that are found in the store.
    pub(crate) stale_commits: u64,
    /// Writes that were refused or failed, and are found in the store; or that succeeded, and are
    /// not.
    pub(crate) wrong: u64,
    /// Writes of which a part is found.
    pub(crate) torn: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            writes,
            stale,
            committed,
            refused,
            failed,
            unknown,
            committed_unknown,
            stale_commits,
            wrong,
            torn,
        } = other;
        self.writes += writes;
        self.stale += stale;
        self.committed += committed;
        self.refused += refused;
        self.failed += failed;
        self.unknown += unknown;
        self.committed_unknown += committed_unknown;
        self.stale_commits += stale_commits;
        self.wrong += wrong;
        self.torn += torn;
    }

    /// Adds one write, of which `found` of `parts` parts stand in the store.
    pub(crate) fn judge(&mut self, stale: bool, came: Came, found: usize, parts: usize) {
        self.writes += 1;
        self.stale += u64::from(stale);
        let counter = match came {
            Came::Committed => &mut self.committed,
            Came::Refused => &mut self.refused,
            Came::Failed => &mut self.failed,
            Came::Unknown => &mut self.unknown,
        };
        *counter += 1;
        if stale && found > 0 {
            self.stale_commits += 1;
        }
        if found != 0 && found != parts {
            self.torn += 1;
        }
        match came {
            Came::Committed if found != parts => self.wrong += 1,
            Came::Refused | Came::Failed if found != 0 => self.wrong += 1,
            Came::Unknown if found == parts => self.committed_unknown += 1,
            _ => {}
        }
        // No other test shows tokens in these runs, so only a stale one may be refused.
        if matches!(came, Came::Refused) && !stale {
            self.wrong += 1;
        }
    }

    /// Prints the figures, and demands what is promised.
    pub(crate) fn settle(&self, store: &str) {
        println!("{store}: {self}");
        assert_eq!(
            (self.stale_commits, self.wrong, self.torn),
            (0, 0, 0),
            "{store}: {self}"
        );
        assert!(self.stale > 0 && self.refused > 0, "{store}: {self}");
        assert!(self.committed > 0, "{store}: {self}");
        assert!(self.failed + self.unknown > 0, "no fault: {store}: {self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} hostile writes ({} by stale holders): {} committed, {} refused, {} failed, {} \
             unknown (of these {} committed); stale commits {}, torn effects {}, wrong outcomes {}",
            self.writes,
            self.stale,
            self.committed,
            self.refused,
            self.failed,
            self.unknown,
            self.committed_unknown,
            self.stale_commits,
            self.torn,
            self.wrong
        )
    }
}

/// What a write returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Committed,
    Refused,
    Failed,
    Unknown,
}

/// Random numbers with a seed: `SplitMix64`.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
