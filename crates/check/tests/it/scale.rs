//! Requests without an answer cost as much each when there are many as when there are few.

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::{Acquire, Invoked, Op, Outcome, Record, Returned};
use ringfence_check::{Report, Verdict};

use crate::good::recording;

/// More than enough to notice work that grows with the square: it would take minutes, and gigabytes.
const ROUNDS: u64 = 5_000;
/// What a round takes, in ns.
const ROUND_NS: u64 = 1_000_000;
/// How many states a request is worth.
const STATES_PER_ROUND: u64 = 30;

/// Who is known to have held the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A token alone.
    Token,
    /// Its session as well.
    Session,
}

/// An operation that takes a tenth of its round.
fn answered(id: u64, t: u64, op: Op, outcome: Outcome) -> [Record; 2] {
    [
        asked(id, t, None, op),
        Record::Returned(Returned {
            id,
            t: t + ROUND_NS / 10,
            outcome,
            index: None,
        }),
    ]
}

fn asked(id: u64, t: u64, session: Option<u64>, op: Op) -> Record {
    Record::Invoked(Invoked {
        id,
        t,
        client: 1,
        session,
        request: None,
        op,
    })
}

fn acquire() -> Op {
    Op::Acquire(Acquire {
        lease: "db".to_owned(),
        wait_ms: None,
        lock_delay_ms: 0,
    })
}

fn get(id: u64, t: u64, holder: Option<(Option<u64>, u64)>) -> [Record; 2] {
    let op = Op::Get {
        lease: "db".to_owned(),
    };
    let outcome = Outcome::Lease {
        session: holder.and_then(|(session, _)| session),
        token: holder.map(|(_, token)| token),
        waiters: None,
    };
    answered(id, t, op, outcome)
}

/// In each round a session asks and is not answered, a client sees that the lease is held, an
/// operator revokes it, and it is seen to be free.
fn revoked(seen: Seen) -> Vec<Record> {
    let mut records = Vec::new();
    for round in 1..=ROUNDS {
        let (t, id) = (round * ROUND_NS, round * 10);
        records.push(asked(id, t, Some(round), acquire()));
        let session = (seen == Seen::Session).then_some(round);
        records.extend(get(id + 1, t + ROUND_NS / 4, Some((session, round))));
        let revoke = Op::Revoke {
            lease: "db".to_owned(),
            token: round,
            now: true,
        };
        records.extend(answered(id + 2, t + ROUND_NS / 2, revoke, Outcome::Done));
        records.extend(get(id + 3, t + 3 * ROUND_NS / 4, None));
    }
    records
}

/// A lease goes from hand to hand, and no session is answered but the first.
fn handed_on() -> Vec<Record> {
    let mut records = Vec::new();
    records.push(asked(1, 1, Some(1), acquire()));
    let outcome = Outcome::Granted { token: 1 };
    records.push(Record::Returned(Returned {
        id: 1,
        t: 2,
        outcome,
        index: None,
    }));
    for round in 1..=ROUNDS {
        let (t, id) = (round * ROUND_NS, round * 10);
        let transfer = Op::Transfer {
            lease: "db".to_owned(),
            token: round,
            to: None,
        };
        records.push(asked(id, t, Some(round), transfer));
        let next = (Some(round + 1), round + 1);
        records.extend(get(id + 1, t + ROUND_NS / 2, Some(next)));
    }
    records
}

fn check(records: &[Record]) -> (Report, u64) {
    let caps = Caps {
        states: STATES_PER_ROUND * ROUNDS,
        ..Caps::default()
    };
    let report = blackbox::check(&recording(records), caps);
    let states = report.looked_at.iter().find(|(what, _)| *what == "states");
    let states = states.map_or(0, |&(_, states)| states);
    (report, states)
}

#[test]
fn acquires_without_an_answer_cost_the_same_however_many_there_are() {
    for seen in [Seen::Token, Seen::Session] {
        let (report, states) = check(&revoked(seen));
        assert_eq!(report.verdict(), Verdict::Valid, "{seen:?}\n{report}");
        assert!(states >= ROUNDS, "{seen:?}: {states}");
    }
}

#[test]
fn hand_overs_without_an_answer_cost_the_same_however_many_there_are() {
    let (report, states) = check(&handed_on());
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert!(states >= ROUNDS, "{states}");
}

#[test]
fn what_they_cannot_explain_is_found_at_the_end_of_all_of_them() {
    // The last of them is seen with a token below the one before it.
    for mut records in [revoked(Seen::Token), revoked(Seen::Session), handed_on()] {
        let t = (ROUNDS + 2) * ROUND_NS;
        records.extend(get(1_000_000, t, Some((None, ROUNDS / 2))));
        let (report, _) = check(&records);
        assert_eq!(report.verdict(), Verdict::Invalid, "{report}");
    }
}

/// A session is granted the lease, then another one, and then the first grant's revoke is answered.
fn revoked_late(has_earlier_try: bool) -> Vec<Record> {
    let revoke = || Op::Revoke {
        lease: "db".to_owned(),
        token: 1,
        now: true,
    };
    let granted = |id, t, session, token| {
        let answer = Record::Returned(Returned {
            id,
            t: t + 1,
            outcome: Outcome::Granted { token },
            index: None,
        });
        [asked(id, t, Some(session), acquire()), answer]
    };
    let mut records = granted(1, 1, 1, 1).to_vec();
    if has_earlier_try {
        records.push(asked(2, ROUND_NS, None, revoke()));
    }
    records.extend(granted(3, 2 * ROUND_NS, 2, 2));
    records.extend(get(4, 3 * ROUND_NS, Some((Some(2), 2))));
    records.extend(answered(5, 4 * ROUND_NS, revoke(), Outcome::Done));
    records.extend(get(6, 5 * ROUND_NS, Some((Some(2), 2))));
    records
}

/// Of seed 3 of the simulation: a repeated revoke was taken for the first one.
#[test]
fn a_revoke_may_repeat_one_that_was_not_answered() {
    let (report, _) = check(&revoked_late(true));
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    let (report, _) = check(&revoked_late(false));
    assert_eq!(report.verdict(), Verdict::Invalid, "{report}");
}
