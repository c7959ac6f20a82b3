//! Blocking work as a future, without a runtime: one thread for each piece.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

/// What the thread and the future share.
struct Shared<T> {
    output: Option<T>,
    /// Whether the thread has ended.
    over: bool,
    waker: Option<Waker>,
}

/// Says that the thread has ended, also if its work panics.
struct Ended<T>(Arc<Mutex<Shared<T>>>);

/// Runs `work` on a thread of its own; dropping the future does not stop it. `None` if there is no
/// thread to be had, or the work panics.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let shared = Arc::new(Mutex::new(Shared {
        output: None,
        over: false,
        waker: None,
    }));
    let ended = Ended(Arc::clone(&shared));
    let running = thread::Builder::new()
        .name("ringfence-seal".into())
        .spawn(move || {
            let output = work();
            lock(&ended.0).output = Some(output);
        });
    running.ok()?;
    poll_fn(|context| {
        let mut shared = lock(&shared);
        if shared.over {
            return Poll::Ready(shared.output.take());
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        let mut shared = lock(&self.0);
        shared.over = true;
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn the_output_comes_when_the_work_is_done_and_none_if_it_panics() {
        let (go, waits) = std::sync::mpsc::channel();
        let work = tokio::spawn(on_thread(move || waits.recv().is_ok()));
        assert!(go.send(()).is_ok());
        assert_eq!(work.await.ok(), Some(Some(true)));
        let (none, waits) = std::sync::mpsc::channel::<()>();
        drop(none);
        let panics = on_thread(move || waits.recv().unwrap()).await;
        assert_eq!(panics, None);
    }
}
