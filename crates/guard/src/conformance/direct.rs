//! A store without futures, seen as one with futures that never wait.

use std::task::{Context, Poll, Waker};
use std::thread;

use ringfence_core::FencingToken;

use super::{AsyncConnection, AsyncStore, Connection, Step, Store};

/// Boxed: a connection may be tens of kilobytes, and a future copies it about.
pub(super) struct Direct<T>(pub(super) Box<T>);

impl<S: Store> AsyncStore for Direct<S> {
    type Connection = Direct<S::Connection>;
    type Backup = S::Backup;

    async fn connect(&self) -> Self::Connection {
        Direct(Box::new(self.0.connect()))
    }

    async fn reopen(&mut self) {
        self.0.reopen();
    }

    async fn backup(&self) -> Self::Backup {
        self.0.backup()
    }

    async fn restore(&mut self, backup: Self::Backup) {
        self.0.restore(backup);
    }

    async fn advance_to(&mut self, floor: FencingToken) {
        self.0.advance_to(floor);
    }
}

impl<C: Connection> AsyncConnection for Direct<C> {
    async fn admit(&mut self, fence: Option<&str>) -> Step {
        self.0.admit(fence)
    }

    async fn advance(&mut self, fence: &str) -> Step {
        self.0.advance(fence)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        self.0.read()
    }

    async fn write(&mut self, datum: Option<u64>) -> Step {
        self.0.write(datum)
    }

    async fn commit(&mut self) -> Step {
        self.0.commit()
    }

    async fn abort(&mut self) {
        self.0.abort();
    }
}

/// Runs a future that waits for nothing but its turn.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::yield_now();
    }
}
