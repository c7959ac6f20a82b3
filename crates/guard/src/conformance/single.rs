//! What needs no second holder at the same time: one case after the other, step by step.

use ringfence_core::FencingToken;

use super::{Connection, LEASE, Rule, Stop, Store, Violation, fence, lease, token};
use crate::Refused;

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
    pub(super) fn write(&mut self, token: FencingToken, datum: Option<u64>) -> Result<(), Rule> {
        let fence = fence(token);
        self.try_write(Some(&fence), datum)
            .map_err(|stop| unexpected(&fence, stop))
    }

    /// Advances with a fence that must be admitted.
    fn advance(&mut self, token: FencingToken) -> Result<(), Rule> {
        let fence = fence(token);
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

pub(super) fn run<S: Store>(fresh: &mut impl FnMut() -> S) -> Result<(), Box<Violation>> {
    type Case<S> = (&'static str, fn(&mut S) -> Result<(), Rule>);
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
        case(&mut fresh()).map_err(|rule| {
            Box::new(Violation {
                case: name.to_owned(),
                rule,
                story: Vec::new(),
            })
        })?;
    }
    Ok(())
}

fn stale(offered: FencingToken, mark: FencingToken) -> Refused {
    Refused::StaleToken {
        name: lease(),
        offered,
        mark,
    }
}

fn wrong_lease<S: Store>(store: &mut S) -> Result<(), Rule> {
    let mut holder = Setup(store.connect());
    holder.write(token(8), Some(1))?;
    for other in ["conformance", "conformance/store/x", "other"] {
        let offered = crate::Fence::parse(&format!("{other}#99"))
            .map_err(|cause| Rule::Broken(cause.to_string()))?;
        let due = Refused::WrongLease {
            expected: lease(),
            offered: offered.name.clone(),
        };
        holder.expect_refusal(Some(&offered.to_string()), &due)?;
    }
    holder.write(token(8), Some(2))?;
    holder.expect_datum(Some(2))
}

fn not_a_fence<S: Store>(store: &mut S) -> Result<(), Rule> {
    let mut holder = Setup(store.connect());
    holder.write(token(8), Some(1))?;
    holder.expect_refusal(None, &Refused::MissingFence { expected: lease() })?;
    let texts = ["", "#9", "9", LEASE, "a b#9"].map(str::to_owned);
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
    ]
    .map(|token| format!("{LEASE}#{token}"));
    for text in texts.iter().chain(&tokens) {
        let Err(cause) = crate::Fence::parse(text) else {
            return Err(Rule::WronglyAdmitted {
                offered: Some(text.clone()),
                expected: "MALFORMED_FENCE".to_owned(),
            });
        };
        holder.expect_refusal(
            Some(text),
            &Refused::Malformed {
                expected: lease(),
                cause,
            },
        )?;
    }
    holder.write(token(8), Some(2))?;
    holder.expect_datum(Some(2))
}

fn equal_token<S: Store>(store: &mut S) -> Result<(), Rule> {
    for datum in 1..=3 {
        Setup(store.connect()).write(token(8), Some(datum))?;
    }
    let mut holder = Setup(store.connect());
    holder.expect_datum(Some(3))?;
    // The ends of the range are tokens like any other.
    holder.write(token(FencingToken::MAX), Some(4))?;
    holder.write(token(FencingToken::MAX), Some(5))?;
    holder.expect_refusal(
        Some(&fence(token(1))),
        &stale(token(1), token(FencingToken::MAX)),
    )?;
    holder.expect_datum(Some(5))
}

fn advance_twice<S: Store>(store: &mut S) -> Result<(), Rule> {
    let mut holder = Setup(store.connect());
    holder.advance(token(9))?;
    holder.advance(token(9))?;
    holder.expect_datum(None)?;
    holder.write(token(9), Some(1))?;
    holder.advance(token(9))?;
    holder.expect_refusal(Some(&fence(token(8))), &stale(token(8), token(9)))?;
    holder.write(token(9), Some(2))?;
    holder.expect_datum(Some(2))
}

fn delete_then_insert<S: Store>(store: &mut S) -> Result<(), Rule> {
    let mut zombie = Setup(store.connect());
    zombie.write(token(8), Some(1))?;
    let mut holder = Setup(store.connect());
    holder.write(token(9), None)?;
    zombie.expect_refusal(Some(&fence(token(8))), &stale(token(8), token(9)))?;
    holder.expect_datum(None)
}

fn abort<S: Store>(store: &mut S) -> Result<(), Rule> {
    let mut holder = Setup(store.connect());
    holder.write(token(8), Some(1))?;
    let fence = fence(token(8));
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
    Setup(store.connect()).expect_datum(Some(1))
}

fn reopen<S: Store>(store: &mut S) -> Result<(), Rule> {
    Setup(store.connect()).write(token(8), Some(1))?;
    Setup(store.connect()).advance(token(9))?;
    store.reopen();
    let mut zombie = Setup(store.connect());
    zombie.expect_refusal(Some(&fence(token(8))), &stale(token(8), token(9)))?;
    zombie.expect_datum(Some(1))?;
    zombie.write(token(9), Some(2))?;
    zombie.expect_datum(Some(2))
}

/// The copy was made under token 5; 7 and 9 came after it. In the copy 7 would be welcome.
fn restore<S: Store>(store: &mut S) -> Result<(), Rule> {
    Setup(store.connect()).write(token(5), Some(1))?;
    let backup = store.backup();
    Setup(store.connect()).write(token(7), Some(2))?;
    Setup(store.connect()).write(token(9), Some(4))?;
    store.restore(backup, token(9));
    let mut zombie = Setup(store.connect());
    zombie.expect_datum(Some(1))?;
    zombie.expect_refusal(Some(&fence(token(7))), &stale(token(7), token(9)))?;
    let mut holder = Setup(store.connect());
    holder.advance(token(9))?;
    holder.write(token(9), Some(8))?;
    holder.expect_datum(Some(8))
}

fn low_floor<S: Store>(store: &mut S) -> Result<(), Rule> {
    Setup(store.connect()).write(token(9), Some(1))?;
    let backup = store.backup();
    store.restore(backup, token(3));
    let mut zombie = Setup(store.connect());
    zombie.expect_refusal(Some(&fence(token(8))), &stale(token(8), token(9)))?;
    zombie.write(token(9), Some(2))?;
    zombie.expect_datum(Some(2))
}
