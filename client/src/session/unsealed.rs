//! A guard that was to be sealed and is not.

use std::fmt;
use std::time::Duration;

use ringfence_core::Refused;

/// A guard that a lease was to be sealed at and that may still admit an older token. Advance it
/// before the first read of what it guards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsealedGuard {
    /// What the guard calls itself.
    pub label: String,
    /// Why it counts as unsealed.
    pub why: Unsealed,
}

/// Why a guard counts as unsealed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsealed {
    /// It has not answered yet; the lease is being sealed.
    Pending,
    /// Its mark may be raised, but its store can lose that.
    NotDurable {
        /// How, in the guard's words.
        why: String,
    },
    /// It refused the fence, for a cause that does not end the grant.
    Refused(Refused),
    /// Its store failed.
    Failed {
        /// The error.
        why: String,
    },
    /// It did not answer within the time for sealing.
    NoAnswer {
        /// For how long it was waited for.
        waited: Duration,
    },
    /// It had not answered when the session came into jeopardy.
    Jeopardy,
}

impl fmt::Display for Unsealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("it has not answered yet"),
            Self::NotDurable { why } => write!(f, "its store can lose the mark: {why}"),
            Self::Refused(refused) => write!(f, "it refused: {refused}"),
            Self::Failed { why } => write!(f, "it failed: {why}"),
            Self::NoAnswer { waited } => {
                let tenths = waited.as_millis() / 100;
                write!(f, "no answer within {}.{} s", tenths / 10, tenths % 10)
            }
            Self::Jeopardy => f.write_str("no answer before the session came into jeopardy"),
        }
    }
}

impl fmt::Display for UnsealedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label, self.why)
    }
}

/// The most guards that one message names.
const NAMED_MAX: usize = 4;

/// These guards in a line.
pub(crate) fn in_a_line(guards: &[UnsealedGuard]) -> String {
    let named = guards.iter().take(NAMED_MAX).map(ToString::to_string);
    let mut text = named.collect::<Vec<_>>().join("; ");
    if let Some(more @ 1..) = guards.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_few_guards_and_counts_the_others() {
        let guard = |number| UnsealedGuard {
            label: format!("g{number}"),
            why: Unsealed::NoAnswer {
                waited: Duration::from_millis(1_250),
            },
        };
        let guards: Vec<_> = (0..6).map(guard).collect();
        assert_eq!(in_a_line(&guards[..1]), "g0: no answer within 1.2 s");
        assert!(in_a_line(&guards).ends_with("g3: no answer within 1.2 s; and 2 more"));
        assert!(!in_a_line(&guards[..4]).contains("more"));
    }
}
