//! When to try again, and what a refusal says about having been done.

use std::time::Duration;

use rand::Rng;
use ringfence_planted::{Bug, planted};

use crate::transport::random;
use crate::transport::refusal::{Reason, Refusal};

/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a refusal means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// An answer: trying again would bring the same.
    Final,
    /// Not done, and worth another try.
    NotDone,
    /// It may have been done: only a repeat with the same number tells.
    Open,
}

/// Sorts refusals. Whatever is not known here is an answer of a newer cluster and goes to the
/// caller.
pub(crate) fn meaning(refusal: &Refusal) -> Meaning {
    match refusal.reason {
        Reason::Unavailable => Meaning::NotDone,
        Reason::OutcomeUnknown if planted(Bug::UnknownIsFinal) => Meaning::Final,
        // A node that fails in the middle of a request cannot know either.
        Reason::OutcomeUnknown | Reason::Fault => Meaning::Open,
        _ => Meaning::Final,
    }
}

/// Whether a final refusal of a request also says what becomes of its earlier tries. What `apply`
/// refuses is remembered under the request's number, so a late try is answered alike. These speak of
/// one try alone, and an earlier one may still be carried out:
///
/// - a limit: the window of remembered answers is full, for example;
/// - who asks: a credential that proves nothing any more, a ban, another principal's session;
/// - a missing right, if the request has no number (`numbered`) under which it is remembered.
pub(crate) fn covers_earlier_tries(refusal: &Refusal, numbered: bool) -> bool {
    let covers = match refusal.reason {
        Reason::Limit | Reason::Unauthenticated => false,
        // Only a missing right names the rule that would be needed.
        Reason::PermissionDenied => numbered && refusal.metadata.contains_key("rule"),
        _ => true,
    };
    covers || planted(Bug::RefusalForAllTries)
}

/// The pause before try number `tries + 1`: doubling, with jitter, so that a thousand clients that
/// lost their leader together do not come back together. Never less than what the refusal asks.
pub(crate) fn pause(tries: u32, asked: Option<Duration>) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << tries.min(8)).min(PAUSE_MAX);
    let jittered = doubled.mul_f64(random::rng().random_range(0.5..1.0));
    jittered.max(asked.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ringfence_proto::{Refusal as Wire, v1};

    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds() {
        for tries in 0..40 {
            let pause = pause(tries, None);
            assert!(
                pause >= PAUSE_MIN / 2 && pause <= PAUSE_MAX,
                "try {tries}: {pause:?}"
            );
        }
        assert!(pause(0, None) <= PAUSE_MIN);
        assert!(pause(20, None) >= PAUSE_MAX / 2);
    }

    #[test]
    fn a_pause_is_not_shorter_than_asked() {
        assert_eq!(
            pause(0, Some(Duration::from_secs(3))),
            Duration::from_secs(3)
        );
    }

    #[test]
    fn a_refusal_of_who_asks_speaks_of_one_try() {
        let covers =
            |refusal, numbered| covers_earlier_tries(&Refusal::of(refusal).unwrap(), numbered);
        let banned = Wire::new(v1::Reason::PermissionDenied, "banned");
        let no_right = banned.clone().with("rule", "acquire a");
        assert!(!covers(banned, true));
        assert!(covers(no_right.clone(), true));
        assert!(!covers(no_right, false));
        assert!(!covers(
            Wire::new(v1::Reason::Unauthenticated, "revoked"),
            true
        ));
        assert!(covers(Wire::new(v1::Reason::Held, "held"), true));
    }

    #[test]
    fn only_what_was_surely_not_done_or_surely_answered_is_taken_for_that() {
        let means = |refusal| Refusal::of(refusal).map(|refusal| meaning(&refusal));
        let unknown = Wire::outcome_unknown("the leader went away");
        assert_eq!(means(unknown), Some(Meaning::Open));
        assert_eq!(means(Wire::fault("the disk is gone")), Some(Meaning::Open));
        let away = Wire::unavailable("no node leads", None, Duration::ZERO);
        assert_eq!(means(away), Some(Meaning::NotDone));
        let ended = Wire::new(v1::Reason::SessionExpired, "it has ended");
        assert_eq!(means(ended), Some(Meaning::Final));
    }
}
