//! Which visits to guarded stores were stale, and what the marks stood at.

use std::collections::BTreeMap;

use super::call::{Call, Fate, WRITE};

/// Marks every admitted visit with what its guard had seen before it, and finds the stale ones.
///
/// Where a store numbers its commits, their order is that; else a visit counts as after another only
/// if it began when that one had been answered, so that nothing is called stale which need not be.
/// Refusals carry their mark with them. A refused advance is not stale: it would have written
/// nothing, and the report counts writes.
pub(super) fn settle(calls: &mut [Call]) {
    let mut by_guard: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, call) in calls.iter_mut().enumerate() {
        let Some(guard) = call.guard else { continue };
        if call.fate == Fate::Done {
            by_guard.entry(guard).or_default().push(at);
        } else {
            let refused = call.fate == Fate::Refused && call.kind == WRITE;
            call.stale = refused && call.token < call.mark;
        }
    }
    for visits in by_guard.into_values() {
        if visits.iter().all(|at| calls[*at].commit.is_some()) {
            by_commit(calls, visits);
        } else {
            by_time(calls, visits);
        }
    }
}

fn by_commit(calls: &mut [Call], mut visits: Vec<usize>) {
    visits.sort_by_key(|at| calls[*at].commit);
    let mut mark = 0;
    for at in visits {
        let call = &mut calls[at];
        call.mark = mark;
        call.stale = call.token < mark;
        mark = mark.max(call.token);
    }
}

fn by_time(calls: &mut [Call], visits: Vec<usize>) {
    let mut by_begin = visits.clone();
    by_begin.sort_by_key(|at| calls[*at].begin);
    let mut by_end = visits;
    by_end.sort_by_key(|at| calls[*at].moment());
    let (mut answered, mut mark) = (by_end.into_iter().peekable(), 0);
    for at in by_begin {
        let begin = calls[at].begin;
        while let Some(earlier) = answered.next_if(|it| calls[*it].moment() < begin) {
            mark = mark.max(calls[earlier].token);
        }
        calls[at].mark = mark;
        calls[at].stale = calls[at].token < mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(token: u64, begin: u64, end: u64) -> Call {
        let mut call = Call::begun(1, WRITE, begin);
        call.end = Some(end);
        call.fate = Fate::Done;
        call.token = token;
        call.guard = Some(0);
        call
    }

    #[test]
    fn a_lower_token_after_a_greater_one_is_stale() {
        let mut calls = [visit(7, 0, 1), visit(8, 2, 3), visit(7, 4, 5)];
        settle(&mut calls);
        assert_eq!(
            calls.each_ref().map(|call| call.stale),
            [false, false, true]
        );
        assert_eq!(calls.each_ref().map(|call| call.mark), [0, 7, 8]);
    }

    #[test]
    fn visits_at_the_same_time_are_not_called_stale() {
        let mut calls = [visit(8, 0, 10), visit(7, 5, 12)];
        settle(&mut calls);
        assert!(calls.iter().all(|call| !call.stale));
    }

    #[test]
    fn the_order_of_commits_decides_where_it_is_known() {
        let mut calls = [visit(8, 0, 10), visit(7, 5, 12)];
        calls[0].commit = Some(1);
        calls[1].commit = Some(2);
        settle(&mut calls);
        assert_eq!(calls.each_ref().map(|call| call.stale), [false, true]);
    }

    #[test]
    fn a_refused_advance_is_no_stale_write() {
        let mut calls = [visit(7, 0, 1), visit(7, 0, 1)];
        for call in &mut calls {
            call.fate = Fate::Refused;
            call.mark = 8;
        }
        calls[0].kind = "advance";
        settle(&mut calls);
        assert_eq!(calls.each_ref().map(|call| call.stale), [false, true]);
    }

    #[test]
    fn a_refusal_is_stale_by_the_mark_that_it_told() {
        let mut calls = [visit(7, 0, 1), visit(9, 0, 1)];
        for call in &mut calls {
            call.fate = Fate::Refused;
            call.mark = 8;
        }
        settle(&mut calls);
        assert_eq!(calls.each_ref().map(|call| call.stale), [true, false]);
    }
}
