//! Many writers at the same time, each of them sometimes the newest and often long stale.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;

use ringfence_core::{FencingToken, LeaseName};

use super::direct::{Direct, block_on};
use super::single::{Setup, unexpected};
use super::{AsyncConnection, AsyncStore, Rule, Stop, Store, Violation, suite_lease};
use crate::{Fence, Refused};

/// How many writers a crowd has.
pub const WRITERS: u64 = 32;

/// How many writes each of them tries.
pub const ROUNDS: u64 = 32;

/// A writer is granted the lease once in so many rounds. In the others it goes on with the grant
/// it has, also when that has long been stale.
const ROUNDS_PER_GRANT: u64 = 8;

/// Where the token of the last write stands in the datum; below it is the count of writes.
const TOKEN_SHIFT: u32 = 32;

/// What a passed crowd has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrowdReport {
    /// Writes that were committed.
    pub committed: u64,
    /// Writers that were refused, in an advance or in a write.
    pub refused: u64,
    /// Transactions that met another one and were repeated from their beginning.
    pub repeated: u64,
}

/// [`WRITERS`] threads take the lease of one store from each other and count in its datum; in
/// commit order their tokens must not decrease, and no acknowledged count may be lost.
///
/// # Errors
/// The [`Violation`] that was found. It has no story: who came when is known to the store alone.
pub fn crowd<S>(mut fresh: impl FnMut(&LeaseName) -> S) -> Result<CrowdReport, Box<Violation>>
where
    S: Store,
    S::Connection: Send,
{
    let lease = suite_lease(0);
    let store = fresh(&lease);
    let newest = AtomicU64::new(0);
    let (lease, newest) = (&lease, &newest);
    let work = |seed: u64, connection| {
        let writer = Writer::new(lease, newest, connection, seed);
        move || block_on(writer.work())
    };
    let logs = thread::scope(|scope| {
        let connections: Vec<_> = (0..WRITERS)
            .map(|_| Direct(Box::new(store.connect())))
            .collect();
        let running: Vec<_> = (1..)
            .zip(connections)
            .map(|(seed, connection)| scope.spawn(work(seed, connection)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Log, Rule>>| match thread.join() {
            Ok(log) => log,
            Err(_) => Err(Rule::Broken("a writer panicked".to_owned())),
        };
        running.into_iter().map(join).collect::<Vec<_>>()
    });
    let store = Direct(Box::new(store));
    block_on(async { judge(&store, logs).await }).map_err(told)
}

/// As [`crowd`], for a store that is reached by futures. The writers are futures of one task: what
/// happens at the same time happens inside the store.
///
/// # Errors
/// As [`crowd`].
pub async fn crowd_async<S: AsyncStore>(
    mut fresh: impl AsyncFnMut(&LeaseName) -> S,
) -> Result<CrowdReport, Box<Violation>> {
    let lease = suite_lease(0);
    let store = fresh(&lease).await;
    let newest = AtomicU64::new(0);
    let mut writers = Vec::new();
    for seed in 1..=WRITERS {
        writers.push(Writer::new(&lease, &newest, store.connect().await, seed));
    }
    let logs = together(writers.into_iter().map(Writer::work)).await;
    judge(&store, logs).await.map_err(told)
}

fn told(rule: Rule) -> Box<Violation> {
    Box::new(Violation {
        case: format!("{WRITERS} writers at the same time"),
        rule,
        story: Vec::new(),
    })
}

/// Awaits all of them at once.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Option<Pin<Box<F>>>> =
        futures.map(|future| Some(Box::pin(future))).collect();
    let mut outputs = Vec::new();
    poll_fn(|context| {
        for slot in &mut running {
            if let Some(future) = slot
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                outputs.push(output);
                *slot = None;
            }
        }
        if running.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs
}

/// What one writer did.
#[derive(Default)]
struct Log {
    /// Count and token of each acknowledged write.
    committed: Vec<(u64, FencingToken)>,
    refused: u64,
    repeated: u64,
}

struct Writer<'a, C> {
    lease: &'a LeaseName,
    /// The newest grant of all writers.
    newest: &'a AtomicU64,
    connection: C,
    dice: u64,
    log: Log,
}

impl<'a, C: AsyncConnection> Writer<'a, C> {
    fn new(lease: &'a LeaseName, newest: &'a AtomicU64, connection: C, seed: u64) -> Self {
        Self {
            lease,
            newest,
            connection,
            dice: seed,
            log: Log::default(),
        }
    }

    async fn work(mut self) -> Result<Log, Rule> {
        let mut held = None;
        for _ in 0..ROUNDS {
            let fence = match held.take() {
                Some(fence) if !self.throws_a_grant() => fence,
                _ => self.take_over().await?,
            };
            let before = self.read().await?;
            self.count(&fence, before).await?;
            held = Some(fence);
        }
        Ok(self.log)
    }

    fn throws_a_grant(&mut self) -> bool {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33).is_multiple_of(ROUNDS_PER_GRANT)
    }

    /// Takes the next token and shows it before anything is read. A newer holder may have done so
    /// by then.
    async fn take_over(&mut self) -> Result<Fence, Rule> {
        let value = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let fence = Fence::new(self.lease.clone(), super::token(value));
        let text = fence.to_string();
        self.insist(&text, async |connection: &mut C| {
            connection.advance(&text).await?;
            connection.commit().await
        })
        .await?;
        Ok(fence)
    }

    async fn read(&mut self) -> Result<u64, Rule> {
        let mut datum = 0;
        self.insist("(a read)", async |connection: &mut C| {
            datum = connection.read().await?.unwrap_or(0);
            Ok(())
        })
        .await?;
        Ok(datum)
    }

    async fn count(&mut self, fence: &Fence, before: u64) -> Result<(), Rule> {
        let text = fence.to_string();
        let count = (before & ((1 << TOKEN_SHIFT) - 1)) + 1;
        let datum = (fence.token.get() << TOKEN_SHIFT) | count;
        let committed = self
            .insist(&text, async |connection: &mut C| {
                connection.admit(Some(&text)).await?;
                // Others come in between, if the store lets them.
                give_way().await;
                connection.write(Some(datum)).await?;
                connection.commit().await
            })
            .await?;
        if committed {
            self.log.committed.push((count, fence.token));
        }
        Ok(())
    }

    /// Repeats the transaction until it is committed, or refused: false.
    async fn insist(
        &mut self,
        fence: &str,
        mut step: impl AsyncFnMut(&mut C) -> Result<(), Stop>,
    ) -> Result<bool, Rule> {
        loop {
            match step(&mut self.connection).await {
                Ok(()) => return Ok(true),
                Err(Stop::Refused(Refused::StaleToken { .. })) => {
                    self.connection.abort().await;
                    self.log.refused += 1;
                    return Ok(false);
                }
                Err(Stop::Blocked | Stop::Restart) => {
                    self.connection.abort().await;
                    self.log.repeated += 1;
                    give_way().await;
                }
                Err(stop) => return Err(unexpected(fence, stop)),
            }
        }
    }
}

/// Lets the others have a turn.
async fn give_way() {
    let gave = Cell::new(false);
    poll_fn(|context| {
        if gave.replace(true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Each committed write counted one more than the one before it, so the counts are the commit
/// order.
async fn judge<S: AsyncStore>(
    store: &S,
    logs: Vec<Result<Log, Rule>>,
) -> Result<CrowdReport, Rule> {
    let mut report = CrowdReport::default();
    let mut committed = Vec::new();
    for log in logs {
        let log = log?;
        report.refused += log.refused;
        report.repeated += log.repeated;
        committed.extend(log.committed);
    }
    committed.sort_unstable();
    report.committed = committed.len() as u64;
    if report.committed == 0 || report.refused == 0 {
        let why = format!("the writers did not get in each other's way: {report:?}");
        return Err(Rule::Broken(why));
    }
    let mut last: Option<FencingToken> = None;
    for (due, &(count, token)) in (1..).zip(&committed) {
        if count != due {
            // Two writes counted the same, so one has overwritten the other.
            return Err(Rule::WrongDatum {
                expected: Some(due),
                found: Some(count),
            });
        }
        if let Some(before) = last.filter(|&before| before > token) {
            return Err(Rule::TokensDecreased {
                before,
                after: token,
            });
        }
        last = Some(token);
    }
    let expected = last.map(|token| (token.get() << TOKEN_SHIFT) | report.committed);
    let mut reader = Setup(store.connect().await);
    reader.expect_datum(expected).await?;
    Ok(report)
}
