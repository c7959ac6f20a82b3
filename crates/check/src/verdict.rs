//! What a checker says.

use std::fmt;

use serde::{Serialize, Serializer};

/// The most violations that a report lists; the rest is counted.
pub const VIOLATIONS_MAX: usize = 100;

/// Whether a correct service could have shown this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything that was looked at is as promised.
    Valid,
    /// Something was left open: a limit of the search was reached, or the material does not show
    /// what was to be shown.
    Unknown,
    /// A promise was broken.
    Invalid,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valid => "valid",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
        })
    }
}

/// A promise, by its name in the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Rule {
    /// A guard admits tokens in rising order of its commits.
    I1,
    /// Tokens are unique, and greater for what was asked for later.
    I2,
    /// Two holders of a lease never believe at the same time.
    I4,
    /// Nothing acknowledged is lost, and a request has one answer.
    I5,
    /// Operations on a lease are linearizable.
    I6,
    /// No session ends early.
    I7,
    /// No session comes back.
    I10,
    /// Waiting is first in, first out.
    I12,
    /// Watches are in order, without duplicates and without gaps.
    I14,
    /// What was said not to be done has no effect.
    I19,
    /// Cluster time does not move faster than true time.
    I22,
    /// No guard refuses a token that is not below its mark.
    I23,
    /// A grant that was reported lost is never again reported held.
    I24,
}

impl Rule {
    /// The promise in one sentence.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::I1 => "a guard admits tokens in rising order of its commits",
            Self::I2 => "tokens are unique, and greater for what was asked for later",
            Self::I4 => "two holders of a lease never believe at the same time",
            Self::I5 => "nothing acknowledged is lost, and a request has one answer",
            Self::I6 => "operations are linearizable",
            Self::I7 => "no session ends early",
            Self::I10 => "no session comes back",
            Self::I12 => "waiting is first in, first out",
            Self::I14 => "watches are in order, without duplicates and without gaps",
            Self::I19 => "what was said not to be done has no effect",
            Self::I22 => "cluster time does not move faster than true time",
            Self::I23 => "no guard refuses a token that is not below its mark",
            Self::I24 => "a grant that was reported lost is never again reported held",
        }
    }
}

/// An observation that a promise excludes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The promise that does not hold.
    pub rule: Rule,
    /// When it showed, in ns of the recorder's clock.
    pub t: u64,
    /// On which lease, if on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The operations that contradict each other, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<u64>,
    /// What happened, with the times, for people.
    pub what: String,
}

/// What a checker found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Broken promises in the order in which they showed, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
    /// How many more there are.
    pub more_violations: u64,
    /// Why the verdict cannot be *valid* although nothing was found.
    pub unknowns: Vec<String>,
    /// What was not looked at, and why that is right.
    pub remarks: Vec<String>,
    /// How much was looked at.
    #[serde(serialize_with = "as_map")]
    pub looked_at: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(counts: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.iter().copied())
}

impl Report {
    /// Invalid if a promise is broken, unknown if something could not be checked, else valid.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.violations.is_empty() {
            Verdict::Invalid
        } else if self.unknowns.is_empty() {
            Verdict::Valid
        } else {
            Verdict::Unknown
        }
    }

    /// Notes a broken promise.
    pub(crate) fn violated(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// Puts what was found into order and keeps the beginning of it.
    pub(crate) fn finish(mut self) -> Self {
        self.violations
            .sort_by_key(|violation| (violation.t, violation.rule));
        let more = self.violations.len().saturating_sub(VIOLATIONS_MAX);
        self.violations.truncate(VIOLATIONS_MAX);
        self.more_violations += more as u64;
        self
    }
}

impl fmt::Display for Report {
    /// A line per finding; the verdict is for the caller to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            let Violation { rule, what, .. } = violation;
            writeln!(f, "{rule:?} broken ({}): {what}", rule.promise())?;
        }
        if self.more_violations > 0 {
            writeln!(f, "and {} more", self.more_violations)?;
        }
        for unknown in &self.unknowns {
            writeln!(f, "unknown: {unknown}")?;
        }
        for remark in &self.remarks {
            writeln!(f, "not looked at: {remark}")?;
        }
        let counts = self.looked_at.iter();
        let counts: Vec<String> = counts
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if !counts.is_empty() {
            writeln!(f, "looked at: {}", counts.join(", "))?;
        }
        Ok(())
    }
}
