//! A session's request numbers, and the lowest it still waits for.

use std::collections::BTreeSet;

/// How far a number may be above the lowest unconfirmed one; what the cluster remembers.
const SPAN_MAX: u64 = ringfence_core::UNCONFIRMED_MAX;
/// Numbers that acquires leave free, so that what ends waits and grants always gets through.
const RESERVED: u64 = 64;

/// What a number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// An acquire that is answered at once.
    Acquire,
    /// An acquire that waits for its lease, perhaps for hours. The cluster remembers it as long as
    /// it waits or holds whatever is confirmed meanwhile, so it holds up no later number.
    Wait,
    /// A cancel, release or transfer.
    Ending,
}

/// A request's number and the lowest unconfirmed one, as they were when it was first sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestNumber {
    pub(crate) number: u64,
    pub(crate) lowest: u64,
}

/// The numbers of one session.
#[derive(Debug)]
pub(crate) struct RequestNumbers {
    next: u64,
    unconfirmed: BTreeSet<u64>,
}

impl RequestNumbers {
    /// Numbers from `first` on; it is not 0.
    pub(crate) fn from(first: u64) -> Self {
        Self {
            next: first,
            unconfirmed: BTreeSet::new(),
        }
    }

    /// The next number, unless it would be too far above the lowest that is unconfirmed.
    pub(crate) fn take(&mut self, kind: RequestKind) -> Option<RequestNumber> {
        let number = self.next;
        let lowest = self.unconfirmed.first().copied().unwrap_or(number);
        let room = match kind {
            RequestKind::Acquire | RequestKind::Wait => SPAN_MAX - RESERVED,
            RequestKind::Ending => SPAN_MAX,
        };
        if number - lowest >= room {
            return None;
        }
        self.next += 1;
        if kind != RequestKind::Wait {
            self.unconfirmed.insert(number);
        }
        Some(RequestNumber { number, lowest })
    }

    /// The answer of this number has come, or no caller wants it any more.
    pub(crate) fn confirm(&mut self, number: u64) {
        self.unconfirmed.remove(&number);
    }

    /// Another client used the session: its numbers up to `lowest` are spent.
    pub(crate) fn skip_to(&mut self, lowest: u64) {
        self.next = self.next.max(lowest.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_request_names_the_lowest_that_is_unconfirmed() {
        let mut numbers = RequestNumbers::from(1);

        assert_eq!(
            numbers.take(RequestKind::Acquire),
            Some(RequestNumber {
                number: 1,
                lowest: 1
            })
        );
        assert_eq!(
            numbers.take(RequestKind::Acquire),
            Some(RequestNumber {
                number: 2,
                lowest: 1
            })
        );
        numbers.confirm(1);
        assert_eq!(
            numbers.take(RequestKind::Ending),
            Some(RequestNumber {
                number: 3,
                lowest: 2
            })
        );
        numbers.confirm(3);
        numbers.confirm(2);
        assert_eq!(
            numbers.take(RequestKind::Ending),
            Some(RequestNumber {
                number: 4,
                lowest: 4
            })
        );
    }

    #[test]
    fn acquires_leave_room_for_what_ends_them() {
        let mut numbers = RequestNumbers::from(1);
        let acquires = std::iter::from_fn(|| numbers.take(RequestKind::Acquire)).count() as u64;
        let endings = std::iter::from_fn(|| numbers.take(RequestKind::Ending)).count() as u64;

        assert_eq!((acquires, endings), (SPAN_MAX - RESERVED, RESERVED));

        numbers.confirm(1);
        assert_eq!(numbers.take(RequestKind::Acquire), None);
        assert_eq!(numbers.take(RequestKind::Ending).unwrap().lowest, 2);
    }

    #[test]
    fn a_wait_holds_up_no_later_number() {
        let mut numbers = RequestNumbers::from(1);
        assert_eq!(numbers.take(RequestKind::Wait).unwrap().lowest, 1);
        for number in 2..=10 * SPAN_MAX {
            let taken = numbers.take(RequestKind::Acquire).unwrap();
            assert_eq!((taken.number, taken.lowest), (number, number));
            numbers.confirm(number);
        }
    }

    #[test]
    fn numbers_that_others_spent_are_skipped() {
        let mut numbers = RequestNumbers::from(5);
        numbers.skip_to(900);
        assert_eq!(
            numbers.take(RequestKind::Ending),
            Some(RequestNumber {
                number: 901,
                lowest: 901
            })
        );
        numbers.skip_to(3);
        assert_eq!(numbers.take(RequestKind::Ending).unwrap().number, 902);
    }
}
