//! The ceiling: the greatest token that a guard takes for one that was granted.

use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_core::FencingToken;
use ringfence_planted::{Bug, planted};

use crate::{Fence, Refused};

/// The greatest token with which a guard raises its mark.
///
/// A mark never goes down. Without a ceiling, one request with a token that was made up, 2^62 for
/// example, locks the rightful holder and every later one out of the store for ever. A cluster counts
/// its tokens from its leader's clock, so a token far ahead of the guard's own clock was not granted.
///
/// # What it judges
/// Only a token that would raise the mark. The mark's own token is admitted whatever the clock
/// shows: a clock that is set back does not stop the holder at work. `advance_to`, which comes from
/// an operator or from the cluster's floors, is not judged either.
///
/// # What it does not do
/// Below the ceiling it cannot tell a token that was made up: that one shuts the holder out until
/// the cluster's tokens have passed it, after a day and a little at the latest, if a new term begins
/// then. A guard that follows floors (feature `follow`) refuses it at once.
///
/// # When it refuses the rightful holder
/// * **The guard's clock is more than a day behind**, at 1970 after a start without a network for
///   example. Every new holder is refused with [`Refused::TokenTooHigh`], which does not end its
///   grant, until the clock is set. To admit everything meanwhile would be worse: a refusal is over
///   when the clock is right, a mark that was raised too far stays.
/// * **A leader's clock was more than a day ahead** when its term began. Tokens stay there. Set
///   [`Ceiling::At`] above them, or [`Ceiling::Off`].
/// * **The cluster was formed with `--token-floor`** above `(now + 1 day) << 20`, which is about
///   2^50.7 in 2026. The same. Tokens of a lower floor, 0 for example, are below every guard's
///   ceiling; for these [`Ceiling::At`] is worth setting, some 2^32 above the floor.
///
/// A clock that is ahead only lets more pass: the ceiling is higher than it need be.
///
/// # Other languages
/// The SQL functions of PostgreSQL and the script of Redis judge callers that are not this crate by
/// their server's clock, and say in their heads how to switch that off. The statements for SQLite do
/// not judge, nor does anything judge what a program writes into the table or key of the marks itself.
///
/// # Cluster ids
/// The ceiling compares no cluster: a fence is `NAME#TOKEN` and carries no cluster id. A token of another
/// cluster with a right clock passes. A follower of floors can be bound to clusters
/// (`follow::Options::clusters`), and says what that covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ceiling {
    /// `(now + 1 day) << 20`, with `now` in seconds since 1970, by the clock of this process, also
    /// for marks in PostgreSQL and Redis.
    #[default]
    Clock,
    /// This token, whatever the time is: for a cluster whose tokens do not follow the clock.
    At(FencingToken),
    /// None: every token is admitted that is at least the mark.
    Off,
}

impl Ceiling {
    /// The ceiling of a guard whose clock shows `unix_seconds`, in seconds since 1970.
    #[must_use]
    pub const fn of_clock(unix_seconds: u64) -> FencingToken {
        let seconds = unix_seconds.saturating_add(Refused::AHEAD_SECONDS);
        let most = FencingToken::MAX >> FencingToken::CLOCK_SHIFT;
        let token = if seconds > most {
            FencingToken::MAX
        } else {
            seconds << FencingToken::CLOCK_SHIFT
        };
        FencingToken::new(token).expect("a day is more than 0, and MAX is a token")
    }

    /// The greatest token that is admitted now, by the clock of this process if it needs one.
    #[must_use]
    pub fn token(self) -> FencingToken {
        self.fixed().unwrap_or_else(|| Self::of_clock(now()))
    }

    /// Refuses the fence if its token is greater than `mark` and above the ceiling, by the clock of
    /// this process: for stores without an adapter, behind [`Fence::judge`] and before anything is
    /// written.
    ///
    /// ```
    /// use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};
    ///
    /// let lease = LeaseName::parse("bank/balance")?;
    /// let mark = FencingToken::new(8);
    ///
    /// let fence: Fence = "bank/balance#9".parse()?;
    /// let new_mark = fence.judge(&lease, mark)?;
    /// Ceiling::default().judge(&fence, mark)?;
    /// assert_eq!(new_mark, fence.token);
    ///
    /// let made_up: Fence = "bank/balance#4611686018427387904".parse()?;
    /// let refused = Ceiling::default().judge(&made_up, mark).unwrap_err();
    /// assert_eq!(refused.reason(), "TOKEN_TOO_HIGH");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused::TokenTooHigh`].
    pub fn judge(self, fence: &Fence, mark: Option<FencingToken>) -> Result<(), Refused> {
        if mark >= Some(fence.token) {
            return Ok(());
        }
        let ceiling = self.token();
        if fence.token <= ceiling || planted(Bug::MadeUpTokenAdmitted) {
            return Ok(());
        }
        Err(fence.above(ceiling))
    }

    /// The ceiling that needs no clock; `None`: that of the clock.
    pub(crate) fn fixed(self) -> Option<FencingToken> {
        match self {
            Self::Clock => None,
            Self::At(token) => Some(token),
            Self::Off => FencingToken::new(FencingToken::MAX),
        }
    }
}

/// Seconds since 1970; 0 before.
#[expect(
    clippy::disallowed_methods,
    reason = "who holds a lease does not depend on it: only whether a token can have been granted yet, give or take a day"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn the_ceiling_is_a_day_ahead_of_the_clock() {
        assert_eq!(Ceiling::of_clock(1_000_000_000), token(1_000_086_400 << 20));
        // A clock that was never set has a ceiling as well.
        assert_eq!(Ceiling::of_clock(0), token(86_400 << 20));
        for far in [1 << 43, 1 << 60, u64::MAX] {
            assert_eq!(Ceiling::of_clock(far), token(FencingToken::MAX));
        }
    }

    #[test]
    fn only_a_token_that_would_raise_the_mark_is_judged() {
        let ceiling = Ceiling::At(token(100));
        let fence: Fence = "db#101".parse().unwrap();
        for mark in [None, Some(token(1)), Some(token(100))] {
            assert_eq!(ceiling.judge(&fence, mark), Err(fence.above(token(100))));
            assert_eq!(Ceiling::Off.judge(&fence, mark), Ok(()));
            assert_eq!(Ceiling::Clock.judge(&fence, mark), Ok(()));
        }
        // At work already, or stale, which is for the mark to say.
        for mark in [101, 102] {
            assert_eq!(ceiling.judge(&fence, Some(token(mark))), Ok(()));
        }
        let fence: Fence = "db#100".parse().unwrap();
        assert_eq!(ceiling.judge(&fence, None), Ok(()));
    }

    #[test]
    fn tokens_of_this_hour_pass_and_those_of_next_week_do_not() {
        let name = ringfence_core::LeaseName::parse("db").unwrap();
        let at =
            |seconds: u64| Fence::new(name.clone(), token(seconds << FencingToken::CLOCK_SHIFT));
        assert_eq!(Ceiling::Clock.judge(&at(now()), None), Ok(()));
        assert_eq!(Ceiling::Clock.judge(&at(now() + 3_600), None), Ok(()));
        let refused = Ceiling::Clock.judge(&at(now() + 7 * 86_400), None);
        assert_eq!(refused.unwrap_err().reason(), "TOKEN_TOO_HIGH");
    }
}
