//! What needs no second holder at the same time: one case after the other, step by step.

use ringfence_core::{FencingToken, LeaseName};

use super::{Connection, Rule, Stop, Store, Subject, Subjects, Violation, token};
use crate::{Fence, Refused};

/// How often a step may find the store busy while nobody else is there.
const BLOCKED_MAX: u32 = 100;

/// A connection that is alone, so that blocked steps are simply tried again.
pub(super) struct Setup<C>(pub(super) C);

impl<C: Connection> Setup<C> {
    /// Retries `step` while it is blocked, and begins the transaction anew when the store gave
    /// it up.
    fn settle<T>(&mut self, mut step: impl FnMut(&mut C) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut stopped = 0;
        loop {
            match step(&mut self.0) {
                Err(Stop::Blocked | Stop::Restart) if stopped < BLOCKED_MAX => stopped += 1,
                done => return done,
            }
            self.0.abort();
        }
    }

    /// Admits the fence, writes, commits: in one transaction.
    fn try_write(&mut self, fence: Option<&str>, datum: Option<u64>) -> Result<(), Stop> {
        let outcome = self.settle(|connection| {
            connection.admit(fence)?;
            connection.write(datum)?;
            connection.commit()
        });
        if outcome.is_err() {
            self.0.abort();
        }
        outcome
    }

    /// Writes with a fence that must be admitted.
    pub(super) fn write(&mut self, fence: &Fence, datum: Option<u64>) -> Result<(), Rule> {
        let fence = fence.to_string();
        self.try_write(Some(&fence), datum)
            .map_err(|stop| unexpected(&fence, stop))
    }

    /// Advances with a fence that must be admitted.
    fn advance(&mut self, fence: &Fence) -> Result<(), Rule> {
        let fence = fence.to_string();
        self.try_advance(&fence)
            .map_err(|stop| unexpected(&fence, stop))
    }

    fn try_advance(&mut self, fence: &str) -> Result<(), Stop> {
        let outcome = self.settle(|connection| {
            connection.advance(fence)?;
            connection.commit()
        });
        if outcome.is_err() {
            self.0.abort();
        }
        outcome
    }

    pub(super) fn expect_datum(&mut self, expected: Option<u64>) -> Result<(), Rule> {
        let found = self
            .settle(Connection::read)
            .map_err(|stop| unexpected("(a read)", stop))?;
        if found == expected {
            Ok(())
        } else {
            Err(Rule::WrongDatum { expected, found })
        }
    }

    /// Shows a fence that must be refused as `due`, in a write and where possible in an advance.
    fn expect_refusal(&mut self, offered: Option<&str>, due: &Refused) -> Result<(), Rule> {
        judge(offered, due, self.try_write(offered, Some(666)))?;
        match offered {
            Some(fence) => judge(offered, due, self.try_advance(fence)),
            None => Ok(()),
        }
    }
}

fn judge(offered: Option<&str>, due: &Refused, outcome: Result<(), Stop>) -> Result<(), Rule> {
    let offered = offered.map(str::to_owned);
    let expected = due.to_string();
    match outcome {
        Ok(()) => Err(Rule::WronglyAdmitted { offered, expected }),
        Err(Stop::Refused(refused)) if refused == *due => Ok(()),
        Err(Stop::Refused(refused)) => Err(Rule::WrongRefusal {
            offered,
            expected,
            refused,
        }),
        Err(stop) => Err(unexpected("(a refused one)", stop)),
    }
}

fn unexpected(offered: &str, stop: Stop) -> Rule {
    match stop {
        Stop::Refused(refused) => Rule::RefusedWithoutCause {
            offered: offered.to_owned(),
            refused,
        },
        Stop::Blocked | Stop::Restart => Rule::Stuck,
        Stop::Broken(why) => Rule::Broken(why),
    }
}

pub(super) fn run<S: Store>(
    subjects: &mut Subjects<impl FnMut(&LeaseName) -> S>,
) -> Result<(), Box<Violation>> {
    type Case<S> = (&'static str, fn(&mut Subject<S>) -> Result<(), Rule>);
    let cases: [Case<S>; 9] = [
        (
            "a fence of another lease is refused and leaves no mark",
            wrong_lease,
        ),
        (
            "a missing or malformed fence is refused and leaves no mark",
            not_a_fence,
        ),
        ("the same token is admitted again and again", equal_token),
        (
            "advancing twice changes nothing, advancing back is refused",
            advance_twice,
        ),
        ("a deletion keeps the mark", delete_then_insert),
        ("an aborted transaction leaves the datum alone", abort),
        ("the mark survives a reopening", reopen),
        (
            "after a restore nobody below the floor is admitted",
            restore,
        ),
        ("a floor below the mark changes nothing", low_floor),
    ];
    for (name, case) in cases {
        case(&mut subjects.next()).map_err(|rule| {
            Box::new(Violation {
                case: name.to_owned(),
                rule,
                story: Vec::new(),
            })
        })?;
    }
    Ok(())
}

impl<S: Store> Subject<S> {
    fn connect(&self) -> Setup<S::Connection> {
        Setup(self.store.connect())
    }

    /// The fence with this number as its token.
    fn at(&self, value: u64) -> Fence {
        self.fence(token(value))
    }

    /// Shows on a new connection that everybody below `mark` is refused and told so.
    fn expect_stale(&self, offered: u64, mark: u64) -> Result<(), Rule> {
        let due = self.stale(token(offered), token(mark));
        self.connect()
            .expect_refusal(Some(&self.at(offered).to_string()), &due)
    }
}

fn wrong_lease<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect();
    holder.write(&subject.at(8), Some(1))?;
    let lease = subject.lease.as_str();
    for other in [
        "other".to_owned(),
        format!("{lease}/x"),
        format!("{lease}0"),
        lease.to_uppercase(),
    ] {
        let offered = Fence::parse(&format!("{other}#99"))
            .map_err(|cause| Rule::Broken(format!("the fence of `{other}`: {cause}")))?;
        let due = Refused::WrongLease {
            expected: subject.lease.clone(),
            offered: offered.name.clone(),
        };
        holder.expect_refusal(Some(&offered.to_string()), &due)?;
    }
    holder.write(&subject.at(8), Some(2))?;
    holder.expect_datum(Some(2))
}

fn not_a_fence<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect();
    holder.write(&subject.at(8), Some(1))?;
    holder.expect_refusal(
        None,
        &Refused::MissingFence {
            expected: subject.lease.clone(),
        },
    )?;
    let lease = subject.lease.as_str();
    let texts = ["", "#9", "9", lease, "a b#9"].map(str::to_owned);
    let tokens = [
        "",
        "0",
        "-9",
        "+9",
        "9 ",
        "09",
        "9x",
        "0x9",
        "9#9",
        "9223372036854775808",
    ];
    for text in texts
        .into_iter()
        .chain(tokens.map(|token| format!("{lease}#{token}")))
    {
        let cause = match Fence::parse(&text) {
            Err(cause) => cause,
            Ok(fence) => return Err(Rule::Broken(format!("`{fence}` is a fence"))),
        };
        let due = Refused::Malformed {
            expected: subject.lease.clone(),
            cause,
        };
        holder.expect_refusal(Some(&text), &due)?;
    }
    holder.write(&subject.at(8), Some(2))?;
    holder.expect_datum(Some(2))
}

fn equal_token<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    for datum in 1..=3 {
        subject.connect().write(&subject.at(8), Some(datum))?;
    }
    let mut holder = subject.connect();
    holder.expect_datum(Some(3))?;
    // The ends of the range are tokens like any other.
    holder.write(&subject.at(FencingToken::MAX), Some(4))?;
    holder.write(&subject.at(FencingToken::MAX), Some(5))?;
    subject.expect_stale(1, FencingToken::MAX)?;
    holder.expect_datum(Some(5))
}

fn advance_twice<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect();
    holder.advance(&subject.at(9))?;
    holder.advance(&subject.at(9))?;
    holder.expect_datum(None)?;
    holder.write(&subject.at(9), Some(1))?;
    holder.advance(&subject.at(9))?;
    subject.expect_stale(8, 9)?;
    holder.write(&subject.at(9), Some(2))?;
    holder.expect_datum(Some(2))
}

fn delete_then_insert<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut zombie = subject.connect();
    zombie.write(&subject.at(8), Some(1))?;
    let mut holder = subject.connect();
    holder.write(&subject.at(9), None)?;
    let due = subject.stale(token(8), token(9));
    zombie.expect_refusal(Some(&subject.at(8).to_string()), &due)?;
    holder.expect_datum(None)
}

fn abort<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect();
    holder.write(&subject.at(8), Some(1))?;
    let fence = subject.at(8).to_string();
    let mut give_up = |connection: &mut S::Connection| {
        connection.admit(Some(&fence))?;
        connection.write(Some(2))
    };
    holder
        .settle(&mut give_up)
        .map_err(|stop| unexpected(&fence, stop))?;
    holder.0.abort();
    holder.expect_datum(Some(1))?;
    holder
        .settle(&mut give_up)
        .map_err(|stop| unexpected(&fence, stop))?;
    // A connection that is lost in mid-transaction gives it up as well.
    drop(holder);
    subject.connect().expect_datum(Some(1))
}

fn reopen<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject.connect().write(&subject.at(8), Some(1))?;
    subject.connect().advance(&subject.at(9))?;
    subject.store.reopen();
    let mut holder = subject.connect();
    subject.expect_stale(8, 9)?;
    holder.expect_datum(Some(1))?;
    holder.write(&subject.at(9), Some(2))?;
    holder.expect_datum(Some(2))
}

/// The copy was made under token 5; 7 and 9 came after it. In the copy 7 would be welcome.
fn restore<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject.connect().write(&subject.at(5), Some(1))?;
    let backup = subject.store.backup();
    subject.connect().write(&subject.at(7), Some(2))?;
    subject.connect().write(&subject.at(9), Some(4))?;
    subject.store.restore(backup, token(9));
    let mut holder = subject.connect();
    holder.expect_datum(Some(1))?;
    subject.expect_stale(7, 9)?;
    holder.advance(&subject.at(9))?;
    holder.write(&subject.at(9), Some(8))?;
    holder.expect_datum(Some(8))
}

fn low_floor<S: Store>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject.connect().write(&subject.at(9), Some(1))?;
    let backup = subject.store.backup();
    subject.store.restore(backup, token(3));
    let mut holder = subject.connect();
    subject.expect_stale(8, 9)?;
    holder.write(&subject.at(9), Some(2))?;
    holder.expect_datum(Some(2))
}
