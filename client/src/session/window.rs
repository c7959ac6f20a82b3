//! How long a client may believe in what it holds: arithmetic only, no clock.
//!
//! `valid_until = t_send + TTL·(1 − ρ) − δ`, the greatest of the session's `Open` and its
//! acknowledged keep-alives; no other answer tells what was lost, so no other moves it.
//! `t_send` is read before the request is given to the stream at its first try, so it is not later
//! than its receipt, from which on the cluster lets the session live for a TTL. ρ covers a clock
//! here that is slow by 1 %, δ one there that is fast by as much.

use std::time::Duration;

use ringfence_planted::{Bug, planted};

use crate::clock::Moment;

/// The least that is taken off a TTL.
const MARGIN_MIN: Duration = Duration::from_millis(50);
/// How long before the end of a window the client's thread ends belief, at most: a timer fires late
/// and a caller that waits for the loss has to be woken too, and shall know of it by the window's
/// end.
const LEAD_MAX: Duration = Duration::from_millis(20);

/// How long a session of this TTL may be believed in after a keep-alive was sent that is
/// acknowledged; zero for a TTL too small to believe in at all.
pub(crate) fn validity(ttl: Duration) -> Duration {
    if planted(Bug::WindowIsTheTtl) {
        return ttl;
    }
    let drift = ttl / 100 + Duration::from_nanos(1); // Division rounds down, belief must not gain.
    ttl.saturating_sub(drift)
        .saturating_sub(MARGIN_MIN.max(ttl / 50))
}

/// The interval in which a session may be believed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    validity: Duration,
    /// When the newest of the acknowledged keep-alives was sent, or the `Open`.
    sent: Moment,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// It moved the window's end.
    Later,
    /// A keep-alive sent later was acknowledged before.
    NoChange,
    /// The window had passed when it came: it revives nothing.
    TooLate,
}

impl Window {
    /// The window of a session that was opened or resumed by a request sent at `sent`; never wider
    /// than `renew_deadline`.
    pub(crate) fn new(ttl: Duration, renew_deadline: Duration, sent: Moment) -> Self {
        Self {
            validity: validity(ttl).min(renew_deadline),
            sent,
        }
    }

    /// The moment from which on nothing may be believed any more.
    pub(crate) fn valid_until(&self) -> Moment {
        self.sent + self.validity
    }

    /// The moment from which on the session is in jeopardy: half the window has passed.
    pub(crate) fn jeopardy_at(&self) -> Moment {
        self.sent + self.validity / 2
    }

    /// The moment at which to end belief, so that all have heard by
    /// [`valid_until`](Self::valid_until).
    pub(crate) fn leave_at(&self) -> Moment {
        self.sent + (self.validity - LEAD_MAX.min(self.validity / 20))
    }

    /// Whether belief has ended.
    pub(crate) fn has_passed(&self, now: Moment) -> bool {
        now >= self.valid_until()
    }

    /// Takes the acknowledgement of a keep-alive that was sent at `sent`.
    pub(crate) fn extend(&mut self, sent: Moment, now: Moment) -> Extended {
        if self.has_passed(now) && !planted(Bug::LateAnswerRevives) {
            return Extended::TooLate;
        }
        let sent = match planted(Bug::WindowFromTheAnswer) {
            true => now,
            false => sent,
        };
        // A request cannot be acknowledged before it is sent; a clock that claims so is not
        // allowed to stretch belief.
        let sent = sent.min(now);
        if sent <= self.sent {
            return Extended::NoChange;
        }
        self.sent = sent;
        Extended::Later
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    #[test]
    fn a_window_is_the_ttl_less_one_percent_and_the_margin() {
        let cases = [
            (15_000, 15_000 - 150 - 300),
            (1_000, 1_000 - 10 - 50),
            (100, 100 - 1 - 50),
            (50, 0),
            (0, 0),
        ];
        for (ttl, expected) in cases {
            let validity = validity(Duration::from_millis(ttl));
            let expected = Duration::from_millis(expected).saturating_sub(Duration::from_nanos(1));
            assert_eq!(validity, expected, "TTL {ttl} ms");
        }
    }

    #[test]
    fn the_greatest_acknowledged_send_counts() {
        let mut window = Window::new(Duration::from_secs(10), Duration::MAX, at(1_000));
        let first = window.valid_until();

        assert_eq!(window.extend(at(3_000), at(3_010)), Extended::Later);
        assert_eq!(window.extend(at(2_000), at(3_020)), Extended::NoChange);

        assert_eq!(window.valid_until(), first + Duration::from_secs(2));
    }

    #[test]
    fn a_late_acknowledgement_revives_nothing() {
        let mut window = Window::new(Duration::from_secs(10), Duration::MAX, at(0));
        let end = window.valid_until();

        assert_eq!(window.extend(at(9_000), end), Extended::TooLate);

        assert!(window.has_passed(end));
        assert_eq!(window.valid_until(), end);
    }

    #[test]
    fn patience_narrows_a_window_and_never_widens_it() {
        let ttl = Duration::from_secs(15);
        let narrow = Window::new(ttl, Duration::from_secs(10), at(1_000));
        assert_eq!(narrow.valid_until(), at(11_000));

        let wide = Window::new(ttl, Duration::from_secs(60), at(1_000));
        assert_eq!(wide, Window::new(ttl, Duration::MAX, at(1_000)));
    }

    #[test]
    fn jeopardy_comes_before_the_end() {
        let window = Window::new(Duration::from_secs(15), Duration::MAX, at(0));

        assert!(
            window.jeopardy_at() > at(5_000),
            "before even one keep-alive was due"
        );
        assert!(window.jeopardy_at() < window.leave_at());
        assert_eq!(window.leave_at() + LEAD_MAX, window.valid_until());
    }

    #[test]
    fn a_window_of_a_few_milliseconds_is_left_a_twentieth_early() {
        let window = Window::new(Duration::from_millis(100), Duration::MAX, at(0));
        let early = window.valid_until().saturating_since(window.leave_at());

        assert!(early > Duration::from_millis(2) && early < Duration::from_millis(3));
    }

    proptest! {
        /// The client's clock is slow by up to 1 %, the cluster's fast by up to 1 %: in true time
        /// belief still ends before the session can.
        #[test]
        fn belief_ends_before_the_session_can(
            ttl_ms in 50_u64..86_400_000,
            slow_permille in 0_u64..=10,
            fast_permille in 0_u64..=10,
        ) {
            let ttl = Duration::from_millis(ttl_ms).as_nanos();
            let belief = validity(Duration::from_millis(ttl_ms)).as_nanos();
            // True time that passes while a clock of rate r shows x is x / r.
            let believed = belief * 1_000 * u128::from(1_000 + fast_permille);
            let lives = ttl * 1_000 * u128::from(1_000 - slow_permille);
            prop_assert!(believed <= lives);
        }

        #[test]
        fn no_order_of_acknowledgements_stretches_a_window(
            ttl_ms in 100_u64..100_000,
            acks in proptest::collection::vec((0_u64..50_000, 0_u64..5_000), 0..40),
        ) {
            let ttl = Duration::from_millis(ttl_ms);
            let mut window = Window::new(ttl, Duration::MAX, at(0));
            let mut acknowledged = at(0);
            let mut now = at(0);
            for (sent, delay) in acks {
                now = now.max(at(sent + delay));
                let passed = window.has_passed(now);
                let before = window.valid_until();
                let extended = window.extend(at(sent), now);
                if passed {
                    prop_assert_eq!(extended, Extended::TooLate);
                    prop_assert_eq!(window.valid_until(), before);
                } else {
                    acknowledged = acknowledged.max(at(sent));
                }
                prop_assert!(window.valid_until() <= acknowledged + ttl);
                prop_assert!(window.valid_until() >= before);
            }
        }
    }
}
