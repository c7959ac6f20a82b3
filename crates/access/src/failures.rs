//! How many proofs have failed in the present second.

use std::sync::{Mutex, PoisonError};

/// A count that begins again with each second of the wall clock.
#[derive(Debug)]
pub(crate) struct Failures {
    max: u32,
    window: Mutex<Window>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    second: u64,
    failed: u32,
}

impl Failures {
    pub(crate) const fn at_most(max: u32) -> Self {
        let window = Window {
            second: 0,
            failed: 0,
        };
        Self {
            max,
            window: Mutex::new(window),
        }
    }

    /// Counts one in this second.
    pub(crate) fn count(&self, now: u64) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        // Another second, not only a later one: the clock may have been set back.
        if window.second != now {
            *window = Window {
                second: now,
                failed: 0,
            };
        }
        window.failed = window.failed.saturating_add(1);
    }

    /// How many there were in this second.
    pub(crate) fn in_second(&self, now: u64) -> u32 {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        match window.second == now {
            true => window.failed,
            false => 0,
        }
    }

    /// Whether there were as many in this second as there may be.
    pub(crate) fn are_too_many(&self, now: u64) -> bool {
        self.in_second(now) >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_second_forgets_the_failures_of_the_last() {
        let failures = Failures::at_most(2);
        failures.count(7);
        assert!(!failures.are_too_many(7));
        failures.count(7);
        assert!(failures.are_too_many(7));
        assert!(!failures.are_too_many(8));
        failures.count(6);
        assert_eq!(failures.in_second(6), 1);
    }
}
