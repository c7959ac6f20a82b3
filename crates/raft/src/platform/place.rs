//! Where a node runs: on a real machine, or at a place of a simulation.
//!
//! On a real machine there is no place, and everything here comes down to one look at a flag that
//! is never set. In a simulation every task of a node belongs to its place: the place decides
//! whether it may run now, what its clocks show, and what it hears of other places. All places
//! share one thread.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

/// Set for good as soon as anything happens at a place.
static PLACED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Place>>> = const { RefCell::new(None) };
}

/// One call to another node on its way: the head of the answer, whose body follows.
pub type Exchange = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Status>> + Send>>;
/// What a node answers calls with.
pub type Answer = Arc<dyn Fn(http::Request<Body>) -> Exchange + Send + Sync>;

/// A simulated machine, as what runs on it sees it.
pub trait Place: Send + Sync {
    /// Lets a task run now, or wakes it when it may.
    fn admit(&self, context: &mut Context<'_>) -> Poll<()>;
    /// A task has begun here; it must be ended with the place.
    fn began(&self, task: AbortHandle);
    /// Time since boot, suspend included.
    fn since_boot(&self) -> Duration;
    /// The wall clock, in milliseconds since 1970.
    fn wall_millis(&self) -> u64;
    /// A random number.
    fn random(&self) -> u64;
    /// A way to the node that listens at `address`, host:port. It leads there when it is used.
    fn dial(&self, address: &str) -> Arc<dyn Dial>;
    /// From now on calls to `address` are answered here.
    fn serve(&self, address: &str, answer: Answer);
    /// How long the disk takes from here on until what was just written is durable.
    fn disk_time(&self) -> Duration;
    /// For how long from here on the disk keeps nothing at all: zero, unless something holds it up.
    fn disk_stalls(&self) -> Duration;
}

/// A way to another node.
pub trait Dial: Send + Sync {
    /// Sends a call and waits for the head of its answer.
    fn exchange(&self, request: http::Request<Body>) -> Exchange;
}

/// The place of the task that runs; `None` on a real machine.
pub(crate) fn current() -> Option<Arc<dyn Place>> {
    if !PLACED.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.with_borrow(Clone::clone)
}

/// Asks the place of the task that runs; `None` on a real machine.
pub(crate) fn ask<T>(look: impl FnOnce(&dyn Place) -> T) -> Option<T> {
    if !PLACED.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.with_borrow(|place| place.as_deref().map(look))
}

/// What runs until this is dropped runs at a place.
struct Entered {
    before: Option<Arc<dyn Place>>,
}

fn enter(place: &Arc<dyn Place>) -> Entered {
    PLACED.store(true, Ordering::Relaxed);
    let before = CURRENT.replace(Some(place.clone()));
    Entered { before }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(CURRENT.replace(self.before.take()));
    }
}

/// Does something at a place at once.
pub fn visit<T>(place: &Arc<dyn Place>, work: impl FnOnce() -> T) -> T {
    let _entered = enter(place);
    work()
}

/// Begins a task at a place.
pub fn spawn<F>(place: &Arc<dyn Place>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = tokio::spawn(Gate {
        place: place.clone(),
        inner: Some(Box::pin(future)),
    });
    place.began(task.abort_handle());
    task
}

/// A task at a place.
struct Gate<T> {
    place: Arc<dyn Place>,
    /// `None` once it is done.
    inner: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Future for Gate<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.place.admit(context).is_pending() {
            return Poll::Pending;
        }
        let _entered = enter(&self.place);
        let Some(inner) = &mut self.inner else {
            return Poll::Pending;
        };
        let done = inner.as_mut().poll(context);
        if done.is_ready() {
            self.inner = None;
        }
        done
    }
}

impl<T> Drop for Gate<T> {
    fn drop(&mut self) {
        let _entered = enter(&self.place);
        self.inner = None;
    }
}

impl fmt::Debug for dyn Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::Waker;

    use super::*;
    use crate::platform::clock;

    /// A place that opens when it is ordered to, and shows the wrong time.
    #[derive(Default)]
    struct Island {
        open: AtomicBool,
        waiting: Mutex<Vec<Waker>>,
        tasks: Mutex<Vec<AbortHandle>>,
    }

    impl Place for Island {
        fn admit(&self, context: &mut Context<'_>) -> Poll<()> {
            if self.open.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.waiting.lock().unwrap().push(context.waker().clone());
            Poll::Pending
        }

        fn began(&self, task: AbortHandle) {
            self.tasks.lock().unwrap().push(task);
        }

        fn since_boot(&self) -> Duration {
            Duration::from_secs(42)
        }

        fn wall_millis(&self) -> u64 {
            7
        }

        fn random(&self) -> u64 {
            4
        }

        fn dial(&self, _address: &str) -> Arc<dyn Dial> {
            Arc::new(NoLeader)
        }

        fn serve(&self, _address: &str, _answer: Answer) {}

        fn disk_time(&self) -> Duration {
            Duration::ZERO
        }

        fn disk_stalls(&self) -> Duration {
            Duration::ZERO
        }
    }

    struct NoLeader;

    impl Dial for NoLeader {
        fn exchange(&self, _request: http::Request<Body>) -> Exchange {
            Box::pin(async { Err(Status::unavailable("nowhere")) })
        }
    }

    #[tokio::test]
    async fn a_task_runs_when_its_place_lets_it_and_sees_its_clocks() {
        let island = Arc::new(Island::default());
        let place: Arc<dyn Place> = island.clone();
        let shown = spawn(&place, async {
            let inner =
                crate::platform::runtime::spawn(async { (clock::since_boot(), clock::wall().0) });
            inner.await.unwrap()
        });
        tokio::task::yield_now().await;
        assert!(!shown.is_finished(), "it is not let in");
        island.open.store(true, Ordering::Relaxed);
        let waiting = std::mem::take(&mut *island.waiting.lock().unwrap());
        waiting.into_iter().for_each(Waker::wake);
        assert_eq!(shown.await.unwrap(), (Duration::from_secs(42), 7));
        let begun = island.tasks.lock().unwrap().len();
        assert_eq!(begun, 2, "what its tasks begin belongs to it too");
    }

    #[tokio::test]
    async fn elsewhere_time_and_chance_are_those_of_the_machine() {
        let place: Arc<dyn Place> = Arc::new(Island::default());
        let there = visit(&place, || {
            (clock::wall().0, crate::platform::runtime::random())
        });
        assert_eq!(there, (7, 4));
        assert!(clock::wall().0 > 7 && current().is_none());
        let drawn = [
            crate::platform::runtime::random(),
            crate::platform::runtime::random(),
        ];
        assert_ne!(drawn, [4, 4]);
    }
}
