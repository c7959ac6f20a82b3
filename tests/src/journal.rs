//! What callers saw, and what must be true of it whatever happened in between.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A grant as its caller saw it.
#[derive(Clone, Debug)]
pub struct Act {
    /// The lease.
    pub name: String,
    /// The token.
    pub token: u64,
    /// When the request was first sent, since boot.
    pub invoked: Duration,
    /// When its answer came.
    pub answered: Duration,
    /// When the release was first sent; `None` while it is held.
    pub released: Option<Duration>,
}

/// All grants that callers saw.
#[derive(Debug, Default)]
pub struct Journal {
    acts: Vec<Act>,
}

impl Journal {
    /// Now, on the clock of all entries.
    #[must_use]
    pub fn now() -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }

    /// Adds a grant.
    pub fn add(&mut self, act: Act) {
        self.acts.push(act);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.acts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.acts.is_empty()
    }

    /// All of them.
    #[must_use]
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// No token was seen twice, and none is smaller than one that was answered before its request
    /// was made (I2); no two holders of a lease overlap from answer to release (I4).
    ///
    /// # Errors
    /// Says which two grants contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let mut by_token = BTreeMap::new();
        for act in &self.acts {
            if let Some(other) = by_token.insert(act.token, act) {
                return Err(format!(
                    "token {} was granted twice: {act:?} {other:?}",
                    act.token
                ));
            }
        }
        let mut by_answer: Vec<&Act> = self.acts.iter().collect();
        by_answer.sort_by_key(|act| act.answered);
        let mut by_invocation: Vec<&Act> = self.acts.iter().collect();
        by_invocation.sort_by_key(|act| act.invoked);
        let (mut answered, mut greatest) = (by_answer.into_iter().peekable(), None::<&Act>);
        for act in by_invocation {
            while let Some(earlier) = answered.next_if(|earlier| earlier.answered < act.invoked) {
                if greatest.is_none_or(|greatest| greatest.token < earlier.token) {
                    greatest = Some(earlier);
                }
            }
            if let Some(earlier) = greatest.filter(|earlier| earlier.token >= act.token) {
                return Err(format!(
                    "tokens do not grow: {earlier:?} came before {act:?}"
                ));
            }
        }
        self.check_exclusion()
    }

    fn check_exclusion(&self) -> Result<(), String> {
        let mut by_name: BTreeMap<&str, Vec<&Act>> = BTreeMap::new();
        for act in &self.acts {
            by_name.entry(&act.name).or_default().push(act);
        }
        for acts in by_name.values_mut() {
            acts.sort_by_key(|act| act.token);
            for pair in acts.windows(2) {
                let end = pair[0].released.unwrap_or(Duration::MAX);
                if end > pair[1].answered {
                    return Err(format!(
                        "two holders at once: {:?} and {:?}",
                        pair[0], pair[1]
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(name: &str, token: u64, times: [u64; 3]) -> Act {
        let [invoked, answered, released] = times.map(Duration::from_secs);
        Act {
            name: name.into(),
            token,
            invoked,
            answered,
            released: Some(released),
        }
    }

    fn journal(acts: Vec<Act>) -> Journal {
        Journal { acts }
    }

    #[test]
    fn a_good_journal_passes() {
        let acts = vec![
            act("a", 1, [1, 2, 3]),
            act("a", 2, [1, 4, 5]),
            act("b", 3, [4, 5, 9]),
        ];
        assert_eq!(journal(acts).check(), Ok(()));
    }

    #[test]
    fn a_token_seen_twice_is_found() {
        let acts = vec![act("a", 1, [1, 2, 3]), act("b", 1, [1, 2, 3])];
        assert!(
            journal(acts)
                .check()
                .is_err_and(|why| why.contains("twice"))
        );
    }

    #[test]
    fn a_token_that_falls_is_found() {
        let acts = vec![act("a", 2, [1, 2, 3]), act("b", 1, [4, 5, 6])];
        assert!(
            journal(acts)
                .check()
                .is_err_and(|why| why.contains("do not grow"))
        );
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let acts = vec![act("a", 1, [1, 2, 5]), act("a", 2, [3, 4, 6])];
        assert!(
            journal(acts)
                .check()
                .is_err_and(|why| why.contains("two holders"))
        );
    }
}
