//! What needs no second holder at the same time: one case after the other, step by step.

use ringfence_core::{FencingToken, LeaseName};

use super::{AsyncConnection, AsyncStore, Rule, Stop, Subject, Subjects, Violation, token};
use crate::{Ceiling, Fence, Refused};

/// How often a step may find the store busy while no other connection is there.
const BLOCKED_MAX: u32 = 100;

/// The first number that a double cannot tell from the one before it.
const INEXACT: u64 = (1 << 53) + 1;

/// Tokens that no cluster has granted.
const MADE_UP: [u64; 2] = [1 << 62, FencingToken::MAX];

/// A token of 2020.
const PLAUSIBLE: u64 = 1_600_000_000 << FencingToken::CLOCK_SHIFT;

/// A connection that is alone, so that blocked steps are simply tried again.
pub(super) struct Setup<C>(pub(super) C);

impl<C: AsyncConnection> Setup<C> {
    /// Retries `step` while it is blocked, and begins the transaction again when the store gave
    /// it up.
    async fn settle<T>(
        &mut self,
        mut step: impl AsyncFnMut(&mut C) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let mut stopped = 0;
        loop {
            match step(&mut self.0).await {
                Err(Stop::Blocked | Stop::Restart) if stopped < BLOCKED_MAX => stopped += 1,
                done => return done,
            }
            self.0.abort().await;
        }
    }

    /// Admits the fence, writes, commits: in one transaction.
    async fn try_write(&mut self, fence: Option<&str>, datum: Option<u64>) -> Result<(), Stop> {
        let outcome = self
            .settle(async |connection: &mut C| {
                connection.admit(fence).await?;
                connection.write(datum).await?;
                connection.commit().await
            })
            .await;
        if outcome.is_err() {
            self.0.abort().await;
        }
        outcome
    }

    /// Writes with a fence that must be admitted.
    pub(super) async fn write(&mut self, fence: &Fence, datum: Option<u64>) -> Result<(), Rule> {
        let fence = fence.to_string();
        self.try_write(Some(&fence), datum)
            .await
            .map_err(|stop| unexpected(&fence, stop))
    }

    /// Advances with a fence that must be admitted.
    async fn advance(&mut self, fence: &Fence) -> Result<(), Rule> {
        let fence = fence.to_string();
        self.try_advance(&fence)
            .await
            .map_err(|stop| unexpected(&fence, stop))
    }

    async fn try_advance(&mut self, fence: &str) -> Result<(), Stop> {
        let outcome = self
            .settle(async |connection: &mut C| {
                connection.advance(fence).await?;
                connection.commit().await
            })
            .await;
        if outcome.is_err() {
            self.0.abort().await;
        }
        outcome
    }

    pub(super) async fn expect_datum(&mut self, expected: Option<u64>) -> Result<(), Rule> {
        let found = self
            .settle(async |connection: &mut C| connection.read().await)
            .await
            .map_err(|stop| unexpected("(a read)", stop))?;
        if found == expected {
            Ok(())
        } else {
            Err(Rule::WrongDatum { expected, found })
        }
    }

    /// Shows a fence that must be refused as `due`, in a write and where possible in an advance.
    async fn expect_refusal(&mut self, offered: Option<&str>, due: &Refused) -> Result<(), Rule> {
        judge(offered, due, self.try_write(offered, Some(666)).await)?;
        match offered {
            Some(fence) => judge(offered, due, self.try_advance(fence).await),
            None => Ok(()),
        }
    }

    /// Shows a fence whose token no cluster can have granted by now, in a write and in an advance.
    async fn expect_too_high(&mut self, fence: &Fence) -> Result<(), Rule> {
        let offered = fence.to_string();
        for done in [
            self.try_write(Some(&offered), Some(666)).await,
            self.try_advance(&offered).await,
        ] {
            // What the ceiling was then, only the store can say.
            let due = match &done {
                Err(Stop::Refused(Refused::TokenTooHigh { ceiling, .. }))
                    if *ceiling < fence.token =>
                {
                    fence.above(*ceiling)
                }
                _ => fence.above(Ceiling::Clock.token()),
            };
            judge(Some(&offered), &due, done)?;
        }
        Ok(())
    }

    /// Goes as far as `last` in a transaction that is never committed.
    async fn half_write(&mut self, fence: &str, last: Last) -> Result<(), Rule> {
        self.settle(async |connection: &mut C| {
            connection.admit(Some(fence)).await?;
            match last {
                Last::Check => Ok(()),
                Last::Write => connection.write(Some(666)).await,
            }
        })
        .await
        .map_err(|stop| unexpected(fence, stop))
    }
}

/// The last step before a holder goes away.
#[derive(Clone, Copy)]
enum Last {
    Check,
    Write,
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

pub(super) fn unexpected(offered: &str, stop: Stop) -> Rule {
    match stop {
        Stop::Refused(refused) => Rule::RefusedWithoutCause {
            offered: offered.to_owned(),
            refused,
        },
        Stop::Blocked | Stop::Restart => Rule::Stuck,
        Stop::Broken(why) => Rule::Broken(why),
    }
}

pub(super) async fn run<S: AsyncStore>(
    subjects: &mut Subjects<impl AsyncFnMut(&LeaseName) -> S>,
) -> Result<(), Box<Violation>> {
    macro_rules! cases {
        ($($name:literal: $case:ident,)*) => {$(
            let told = |rule| Violation { case: $name.to_owned(), rule, story: Vec::new() };
            // Boxed: each case is a future of its own size, and their sum would be on the stack.
            Box::pin($case(&mut subjects.next().await)).await.map_err(|rule| Box::new(told(rule)))?;
        )*};
    }
    cases! {
        "a fence of another lease is refused and leaves no mark": wrong_lease,
        "a missing or malformed fence is refused and leaves no mark": not_a_fence,
        "the same token is admitted again and again": equal_token,
        "a made up token leaves every mark as it was, and the holder goes on": made_up,
        "a token that could have been granted shuts out the holder, and is reported": forged,
        "advancing twice changes nothing, advancing back is refused": advance_twice,
        "a deletion keeps the mark": delete_then_insert,
        "an aborted transaction leaves the datum alone": abort,
        "a holder that is cut off before its commit leaves nothing and stops no other holder": cut_off,
        "the mark survives a reopening": reopen,
        "a restore without a floor brings back mark and datum as they were": restore_alone,
        "after a restore no token below the floor is admitted": restore,
        "a floor below the mark changes nothing": low_floor,
        "tokens are exact where a double is not": exact,
    }
    Ok(())
}

impl<S: AsyncStore> Subject<S> {
    async fn connect(&self) -> Setup<S::Connection> {
        Setup(self.store.connect().await)
    }

    /// The fence with this number as its token.
    fn at(&self, value: u64) -> Fence {
        self.fence(token(value))
    }

    /// Shows on a new connection that every token below `mark` is refused and shown why.
    async fn expect_stale(&self, offered: u64, mark: u64) -> Result<(), Rule> {
        let due = self.stale(token(offered), token(mark));
        self.connect()
            .await
            .expect_refusal(Some(&self.at(offered).to_string()), &due)
            .await
    }
}

async fn wrong_lease<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect().await;
    holder.write(&subject.at(8), Some(1)).await?;
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
        holder
            .expect_refusal(Some(&offered.to_string()), &due)
            .await?;
    }
    holder.write(&subject.at(8), Some(2)).await?;
    holder.expect_datum(Some(2)).await
}

async fn not_a_fence<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect().await;
    holder.write(&subject.at(8), Some(1)).await?;
    holder
        .expect_refusal(
            None,
            &Refused::MissingFence {
                expected: subject.lease.clone(),
            },
        )
        .await?;
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
        holder.expect_refusal(Some(&text), &due).await?;
    }
    holder.write(&subject.at(8), Some(2)).await?;
    holder.expect_datum(Some(2)).await
}

async fn equal_token<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    for datum in 1..=3 {
        subject
            .connect()
            .await
            .write(&subject.at(8), Some(datum))
            .await?;
    }
    subject.connect().await.expect_datum(Some(3)).await
}

async fn exact<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    for mark in [INEXACT, FencingToken::MAX] {
        // The end of the range is a token like any other. It comes as a floor, which has no ceiling.
        subject.store.advance_to(token(mark)).await;
        let mut holder = subject.connect().await;
        holder.advance(&subject.at(mark)).await?;
        subject.expect_stale(mark - 1, mark).await?;
        holder.write(&subject.at(mark), Some(1)).await?;
        holder.expect_datum(Some(1)).await?;
    }
    Ok(())
}

/// A mark never goes down: a single one of these would lock every holder out for ever.
async fn made_up<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    // Without a mark, with one, and with a newer one.
    for (mine, datum) in [(None, None), (Some(8), Some(1)), (Some(9), Some(2))] {
        if let Some(mine) = mine {
            let mut holder = subject.connect().await;
            holder.write(&subject.at(mine), datum).await?;
        }
        for forged in MADE_UP {
            let mut forger = subject.connect().await;
            forger.expect_too_high(&subject.at(forged)).await?;
        }
        if let Some(mine) = mine {
            let mut holder = subject.connect().await;
            holder.advance(&subject.at(mine)).await?;
            subject.expect_stale(mine - 1, mine).await?;
        }
        subject.connect().await.expect_datum(datum).await?;
    }
    Ok(())
}

/// Nothing in a store can tell a token that was never granted, if one as great could have been; a
/// guard that follows the floors can, and asks before it comes here.
async fn forged<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect().await;
    holder.write(&subject.at(8), Some(1)).await?;
    let mut forger = subject.connect().await;
    forger.write(&subject.at(PLAUSIBLE), Some(2)).await?;
    subject.expect_stale(8, PLAUSIBLE).await?;
    holder.expect_datum(Some(2)).await
}

async fn advance_twice<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect().await;
    holder.advance(&subject.at(9)).await?;
    holder.advance(&subject.at(9)).await?;
    holder.expect_datum(None).await?;
    holder.write(&subject.at(9), Some(1)).await?;
    holder.advance(&subject.at(9)).await?;
    subject.expect_stale(8, 9).await?;
    holder.write(&subject.at(9), Some(2)).await?;
    holder.expect_datum(Some(2)).await
}

async fn delete_then_insert<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut zombie = subject.connect().await;
    zombie.write(&subject.at(8), Some(1)).await?;
    let mut holder = subject.connect().await;
    holder.write(&subject.at(9), None).await?;
    let due = subject.stale(token(8), token(9));
    zombie
        .expect_refusal(Some(&subject.at(8).to_string()), &due)
        .await?;
    holder.expect_datum(None).await
}

async fn abort<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    let mut holder = subject.connect().await;
    holder.write(&subject.at(8), Some(1)).await?;
    let fence = subject.at(8).to_string();
    holder.half_write(&fence, Last::Write).await?;
    holder.0.abort().await;
    holder.expect_datum(Some(1)).await
}

/// Its connection breaks, its process dies: the store sees no more of it than that.
async fn cut_off<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject
        .connect()
        .await
        .write(&subject.at(8), Some(1))
        .await?;
    for (mine, last) in [(8, Last::Check), (8, Last::Write), (9, Last::Write)] {
        let mut holder = subject.connect().await;
        let fence = subject.at(mine).to_string();
        holder.half_write(&fence, last).await?;
        drop(holder);
        subject.connect().await.expect_datum(Some(1)).await?;
    }
    subject.connect().await.advance(&subject.at(10)).await?;
    subject.expect_stale(8, 10).await?;
    subject
        .connect()
        .await
        .write(&subject.at(10), Some(2))
        .await?;
    subject.connect().await.expect_datum(Some(2)).await
}

async fn reopen<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject
        .connect()
        .await
        .write(&subject.at(8), Some(1))
        .await?;
    subject.connect().await.advance(&subject.at(9)).await?;
    subject.store.reopen().await;
    let mut holder = subject.connect().await;
    subject.expect_stale(8, 9).await?;
    holder.expect_datum(Some(1)).await?;
    holder.write(&subject.at(9), Some(2)).await?;
    holder.expect_datum(Some(2)).await
}

/// The copy was made under token 5: a holder that was admitted later may write again, and the
/// operator who leaves it at that has lost the protection that the newer mark was.
async fn restore_alone<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject
        .connect()
        .await
        .write(&subject.at(5), Some(1))
        .await?;
    let backup = subject.store.backup().await;
    subject
        .connect()
        .await
        .write(&subject.at(9), Some(2))
        .await?;
    subject.store.restore(backup).await;
    subject.connect().await.expect_datum(Some(1)).await?;
    subject.expect_stale(4, 5).await?;
    subject
        .connect()
        .await
        .write(&subject.at(7), Some(4))
        .await?;
    subject.connect().await.expect_datum(Some(4)).await
}

/// The copy was made under token 5; 7 and 9 came after it. In the copy 7 would be welcome.
async fn restore<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject
        .connect()
        .await
        .write(&subject.at(5), Some(1))
        .await?;
    let backup = subject.store.backup().await;
    subject
        .connect()
        .await
        .write(&subject.at(7), Some(2))
        .await?;
    subject
        .connect()
        .await
        .write(&subject.at(9), Some(4))
        .await?;
    subject.store.restore(backup).await;
    subject.store.advance_to(token(9)).await;
    let mut holder = subject.connect().await;
    holder.expect_datum(Some(1)).await?;
    subject.expect_stale(7, 9).await?;
    holder.advance(&subject.at(9)).await?;
    holder.write(&subject.at(9), Some(8)).await?;
    holder.expect_datum(Some(8)).await
}

async fn low_floor<S: AsyncStore>(subject: &mut Subject<S>) -> Result<(), Rule> {
    subject
        .connect()
        .await
        .write(&subject.at(9), Some(1))
        .await?;
    let backup = subject.store.backup().await;
    subject.store.restore(backup).await;
    subject.store.advance_to(token(3)).await;
    let mut holder = subject.connect().await;
    subject.expect_stale(8, 9).await?;
    holder.write(&subject.at(9), Some(2)).await?;
    holder.expect_datum(Some(2)).await
}
