//! The bytes that a node holds for one connection.
//!
//! Each connection has a share that no other takes from it, and beyond it borrows from a pool that
//! all connections have in common. So clients that read nothing take up the pool at most, and
//! all others go on with the own share.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_access::Buckets;
use ringfence_raft::{KeepAliveSource, since_boot};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;

use crate::limits::{
    BYTES_PER_CONNECTION_MAX, BYTES_PER_CONNECTION_SHARE, BYTES_PER_NODE_MAX, BYTES_PER_STREAM_MAX,
    KEEP_ALIVES_PER_CONNECTION_MAX, LARGE_STREAMS_PER_CONNECTION_MAX, POOL_RETRY_AFTER,
    UNKNOWN_SESSIONS_PER_CONNECTION, WAITS_PER_CONNECTION_MAX,
};

/// What all connections of a node borrow from.
#[derive(Debug)]
pub struct Pool {
    /// Below 0 for a moment when an answer is larger than was expected.
    left: AtomicI64,
    /// What all accounts hold, borrowed or not.
    held: AtomicI64,
}

/// How much one connection may hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    share: usize,
    max: usize,
}

/// What one connection holds.
#[derive(Debug)]
pub struct Account {
    pool: Arc<Pool>,
    limits: Limits,
    used: Mutex<Used>,
    freed: Notify,
    waits: Arc<Semaphore>,
    /// A permit for each stream that may keep large buffers.
    large: Arc<Semaphore>,
    source: KeepAliveSource,
    /// A permit for each session and each loss whose keep-alive may be under way.
    kept_alive: Arc<Semaphore>,
    /// What it may name of sessions that its node does not know.
    unknown_sessions: Buckets,
    /// Closes the connection when it is sent or dropped.
    close: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// How many of them come from the pool.
    borrowed: usize,
}

/// Bytes of an account, held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Pool {
    /// One that lends as much as a node has for its clients.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::of(BYTES_PER_NODE_MAX)
    }

    /// One whose connections have their own shares and no more, as when others hold all of it.
    #[cfg(test)]
    pub(crate) fn empty() -> Arc<Self> {
        Self::of(0)
    }

    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicI64::new(signed(bytes)),
            held: AtomicI64::new(0),
        })
    }

    /// The bytes that the node holds for all its clients.
    #[must_use]
    pub fn held(&self) -> u64 {
        u64::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn has_some(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    fn borrow(&self, bytes: usize, even_without: bool) -> bool {
        let wanted = signed(bytes);
        let take =
            |left: i64| (even_without || left >= wanted).then(|| left.saturating_sub(wanted));
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(signed(bytes), Ordering::Relaxed);
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Account {
    /// The account of a new connection.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        let limits = Limits {
            share: BYTES_PER_CONNECTION_SHARE,
            max: BYTES_PER_CONNECTION_MAX,
        };
        Self::of(pool, limits)
    }

    fn of(pool: Arc<Pool>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            pool,
            limits,
            used: Mutex::default(),
            freed: Notify::new(),
            waits: Arc::new(Semaphore::new(WAITS_PER_CONNECTION_MAX)),
            large: Arc::new(Semaphore::new(LARGE_STREAMS_PER_CONNECTION_MAX)),
            source: KeepAliveSource::unique(),
            kept_alive: Arc::new(Semaphore::new(KEEP_ALIVES_PER_CONNECTION_MAX as usize)),
            unknown_sessions: Buckets::new(UNKNOWN_SESSIONS_PER_CONNECTION, 1),
            close: Mutex::default(),
        })
    }

    /// What one stream of a connection may hold, beside what its connection may.
    pub(crate) fn of_stream() -> Arc<Self> {
        let limits = Limits {
            share: BYTES_PER_STREAM_MAX,
            max: BYTES_PER_STREAM_MAX,
        };
        Self::of(Pool::of(0), limits)
    }

    /// The connection among those whose keep-alives wait.
    pub(crate) fn source(&self) -> KeepAliveSource {
        self.source
    }

    /// Takes up to so many of the sessions that the connection may name and its node does not know;
    /// how many there were.
    pub(crate) fn take_unknown_sessions(&self, most: u64) -> u64 {
        self.unknown_sessions.take_some(&(), most, since_boot())
    }

    /// Room for a keep-alive of so many sessions and losses to be under way, as soon as there is some.
    pub(crate) async fn keep_alive(&self, named: usize) -> OwnedSemaphorePermit {
        let most = KEEP_ALIVES_PER_CONNECTION_MAX;
        let named = u32::try_from(named).unwrap_or(most).clamp(1, most);
        let room = self.kept_alive.clone().acquire_many_owned(named).await;
        room.expect("nothing closes this semaphore")
    }

    /// Rests for so long, and lets the connection have as many fewer keep-alives under way meanwhile.
    pub(crate) async fn rest(&self, named: usize, rest: Duration) {
        if !rest.is_zero() {
            let _fewer = self.keep_alive(named).await;
            sleep(rest).await;
        }
    }

    /// A place among the streams of the connection that keep large buffers, as soon as there is one.
    pub(crate) async fn large_stream(&self) -> OwnedSemaphorePermit {
        let place = self.large.clone().acquire_owned().await;
        place.expect("nothing closes this semaphore")
    }

    /// Resolves when the connection has to be closed; for the connection itself.
    #[must_use]
    pub fn closing(&self) -> oneshot::Receiver<()> {
        let (close, closing) = oneshot::channel();
        *self.close.lock().unwrap_or_else(PoisonError::into_inner) = Some(close);
        closing
    }

    /// Closes the connection, so that everything held for it is dropped.
    pub(crate) fn close(&self) {
        let close = self
            .close
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(close) = close {
            // An error means that the connection is gone already.
            let _gone = close.send(()).is_err();
        }
    }

    /// So many bytes, as soon as there is room. What is larger than the whole share is let in
    /// alone: an account that holds nothing always has room.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize) -> Held {
        loop {
            let freed = self.freed.notified();
            if let Some(held) = self.try_reserve(bytes) {
                return held;
            }
            tokio::select! {
                () = freed => {}
                // Another connection may have given something back to the pool.
                () = sleep(POOL_RETRY_AFTER) => {}
            }
        }
    }

    /// As many of `most` bytes as there is room for, in halves; `least` as soon as there is room.
    pub(crate) async fn reserve_some(self: &Arc<Self>, most: usize, least: usize) -> Held {
        let mut bytes = most;
        while bytes > least {
            if let Some(held) = self.try_reserve(bytes) {
                return held;
            }
            bytes /= 2;
        }
        self.reserve(least).await
    }

    /// So many bytes, if there is room.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        self.take(bytes, false).then(|| self.held(bytes))
    }

    /// So many bytes of something that is there already.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Held {
        self.take(bytes, true);
        self.held(bytes)
    }

    /// Resolves when there is room for something.
    pub(crate) async fn room(self: Arc<Self>) {
        loop {
            let freed = self.freed.notified();
            if self.has_room() {
                return;
            }
            tokio::select! {
                () = freed => {}
                () = sleep(POOL_RETRY_AFTER) => {}
            }
        }
    }

    /// Whether a small thing would be let in.
    pub(crate) fn has_room(&self) -> bool {
        let used = self.lock().bytes;
        used < self.limits.share || (used < self.limits.max && self.pool.has_some())
    }

    /// A place for a request that may wait for long; `None` if too many of this connection do.
    pub(crate) fn wait(&self) -> Option<OwnedSemaphorePermit> {
        self.waits.clone().try_acquire_owned().ok()
    }

    fn held(self: &Arc<Self>, bytes: usize) -> Held {
        let account = Arc::clone(self);
        Held { account, bytes }
    }

    fn take(&self, bytes: usize, even_without: bool) -> bool {
        let mut used = self.lock();
        let after = used.bytes.saturating_add(bytes);
        let always = even_without || used.bytes == 0;
        if after > self.limits.max && !always {
            return false;
        }
        let borrow = after
            .saturating_sub(self.limits.share)
            .saturating_sub(used.borrowed);
        if borrow > 0 && !self.pool.borrow(borrow, always) {
            return false;
        }
        used.borrowed += borrow;
        used.bytes = after;
        drop(used);
        self.pool.held.fetch_add(signed(bytes), Ordering::Relaxed);
        true
    }

    fn give_back(&self, bytes: usize) {
        let mut used = self.lock();
        used.bytes = used.bytes.saturating_sub(bytes);
        let needed = used.bytes.saturating_sub(self.limits.share);
        let surplus = used.borrowed.saturating_sub(needed);
        used.borrowed -= surplus;
        drop(used);
        self.pool.give_back(surplus);
        self.pool.held.fetch_sub(signed(bytes), Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // Nothing panics while it holds the lock, so that the numbers are whole.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// How many bytes these are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out so many of these bytes, or as many as there are.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.account.held(bytes)
    }

    /// Holds what another one of the same account holds.
    pub(crate) fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.account, &other.account));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Holds so many bytes from now on, whether there is room or not.
    pub(crate) fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => {
                self.account.take(more, true);
            }
            None => self.account.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use tokio::time::timeout;

    use super::*;

    const LIMITS: Limits = Limits { share: 10, max: 30 };

    fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        let soon = timeout(Duration::from_millis(200), future);
        async { soon.await.ok() }
    }

    #[tokio::test]
    async fn one_connection_takes_its_share_and_the_pool_but_no_others_share() {
        let pool = Pool::of(15);
        let (greedy, modest) = (Account::of(pool.clone(), LIMITS), Account::of(pool, LIMITS));

        let all: Vec<Held> = (0..25).map_while(|_| greedy.try_reserve(1)).collect();
        assert_eq!(all.len(), 25);
        assert!(soon(greedy.reserve(1)).await.is_none());

        let own: Vec<Held> = (0..25).map_while(|_| modest.try_reserve(1)).collect();
        assert_eq!(own.len(), 10, "its share is its own");

        drop(all);
        assert!(
            modest.try_reserve(15).is_some(),
            "what was borrowed is back"
        );
        drop(own);
        assert_eq!(greedy.pool.held(), 0);
    }

    #[tokio::test]
    async fn keep_alives_under_way_have_an_end_and_a_large_one_goes_alone() {
        const MAX: usize = KEEP_ALIVES_PER_CONNECTION_MAX as usize;
        let account = Account::of(Pool::of(0), LIMITS);
        let half = account.keep_alive(MAX / 2).await;
        let other = account.keep_alive(MAX / 2).await;
        assert!(soon(account.keep_alive(1)).await.is_none());
        drop(half);
        assert!(soon(account.keep_alive(10 * MAX)).await.is_none());
        drop(other);
        let all = soon(account.keep_alive(10 * MAX)).await;
        assert!(all.is_some());
        assert!(soon(account.keep_alive(0)).await.is_none());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_by_what_is_given_back() {
        let account = Account::of(Pool::of(0), LIMITS);
        let held = account.try_reserve(10).unwrap();
        let waiter = account.clone();
        let waiting = tokio::spawn(async move { waiter.reserve(4).await });
        assert!(!account.has_room());
        drop(held);
        assert!(soon(waiting).await.is_some());
    }

    #[tokio::test]
    async fn whoever_makes_do_with_less_gets_what_there_is() {
        let account = Account::of(Pool::of(0), LIMITS);
        let all = account.reserve_some(8, 2).await;
        assert_eq!(all.bytes(), 8);
        let rest = account.reserve_some(8, 2).await;
        assert_eq!(rest.bytes(), 2);
        assert!(soon(account.reserve_some(8, 2)).await.is_none());
        drop(all);
        assert_eq!(account.reserve_some(20, 1).await.bytes(), 5);
    }

    #[tokio::test]
    async fn something_larger_than_the_share_is_let_in_alone() {
        let account = Account::of(Pool::of(0), LIMITS);
        let small = account.try_reserve(1).unwrap();
        assert!(account.try_reserve(100).is_none());
        drop(small);
        let large = account.try_reserve(100).unwrap();
        assert!(account.try_reserve(1).is_none());
        drop(large);
        assert!(account.try_reserve(1).is_some());
    }

    proptest! {
        /// Whatever is taken, resized and given back: the pool gets back what it lent.
        #[test]
        fn the_pool_is_whole_when_nothing_is_held(steps in proptest::collection::vec((0..3_u8, 0..40_usize), 0..100)) {
            let pool = Pool::of(50);
            let accounts = [Account::of(pool.clone(), LIMITS), Account::of(pool.clone(), LIMITS)];
            let mut held: Vec<Held> = Vec::new();
            for (at, (step, bytes)) in steps.into_iter().enumerate() {
                match step {
                    0 => held.extend(accounts[at % 2].try_reserve(bytes)),
                    1 => if let Some(last) = held.last_mut() { last.resize(bytes) },
                    _ => if !held.is_empty() { drop(held.swap_remove(bytes % held.len())) },
                }
                let sum: usize = held.iter().map(|held| held.bytes).sum();
                prop_assert_eq!(pool.held(), sum as u64);
            }
            held.clear();
            prop_assert_eq!(pool.left.load(Ordering::Relaxed), 50);
            prop_assert_eq!(pool.held(), 0);
        }
    }
}
