//! What a deterministic simulation of whole clusters needs of the client: its tasks, its chance and
//! its streams in the simulation's hands. Programs have no use for it.
//!
//! Everything else is what programs run: sessions, windows, keep-alives, retries, releases. Unary
//! calls and watches go through gRPC and lead nowhere here.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use ringfence_proto::v1::{ClientMessage, ServerMessage};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinHandle};

use crate::sync::lock;

/// What a client sends on one stream, in order. It ends when the client gives the stream up.
pub type Outgoing = Pin<Box<dyn Stream<Item = ClientMessage> + Send>>;

/// What a client reads of one stream: messages, a greeting first; an error if the connection
/// breaks. It ends where the server ends it.
pub type Incoming = UnboundedReceiver<Result<ServerMessage, String>>;

/// The way from clients to members.
pub trait Network: Send + Sync + 'static {
    /// Connects to the member with this address, `HOST:PORT`. A future that never completes is an
    /// address that swallows packets; an error says why there is no connection.
    fn connect(
        &self,
        address: &str,
        outgoing: Outgoing,
    ) -> BoxFuture<'static, Result<Incoming, String>>;
}

/// A simulated machine with one process on it: a client and the code that uses it.
///
/// All its tasks run on the simulation's own executor, and none while it is frozen.
pub struct Host {
    handle: Handle,
    rng: Mutex<StdRng>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    frozen: bool,
    dead: bool,
    /// Tasks that had something to do while it was frozen.
    waiting: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    /// How many tasks there may be before those that have ended are looked for.
    prune_at: usize,
}

thread_local! {
    /// The host whose task is running.
    static CURRENT: RefCell<Option<Arc<Host>>> = const { RefCell::new(None) };
}

impl Host {
    /// A host whose tasks run on `handle`, with all its chance from `seed`.
    #[must_use]
    pub fn new(handle: Handle, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            handle,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            state: Mutex::default(),
        })
    }

    /// Runs a task on this host. On a dead one it is dropped unseen.
    pub fn spawn<F>(self: &Arc<Self>, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = self.handle.spawn(OnHost {
            host: Arc::clone(self),
            work: Some(Box::pin(work)),
        });
        let mut state = lock(&self.state);
        if state.dead {
            task.abort();
            return task;
        }
        if state.tasks.len() >= state.prune_at {
            state.tasks.retain(|task| !task.is_finished());
            state.prune_at = 2 * state.tasks.len() + 16;
        }
        state.tasks.push(task.abort_handle());
        task
    }

    /// Stops all tasks where they stand, as SIGSTOP does. Time goes on.
    pub fn freeze(&self) {
        lock(&self.state).frozen = true;
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        let waiting = {
            let mut state = lock(&self.state);
            state.frozen = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends all tasks, as SIGKILL does: nothing that they would do at their end is done.
    pub fn kill(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.dead = true;
            state.waiting.clear();
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// Makes this host the one whose chance is drawn from on this thread outside of all tasks of
    /// hosts, until the value is dropped.
    #[must_use = "it ends when it is dropped"]
    pub fn reside(self: &Arc<Self>) -> Resident {
        Resident(enter(self))
    }

    /// Whether it was killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        lock(&self.state).dead
    }

    /// A number from this host's chance.
    pub fn draw(&self) -> u64 {
        lock(&self.rng).random()
    }

    /// Whether a task has to stand still now; it is woken when it may go on.
    fn suspends(&self, task: &Context<'_>) -> bool {
        let mut state = lock(&self.state);
        if state.frozen && !state.dead {
            state.waiting.push(task.waker().clone());
        }
        state.frozen || state.dead
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        write!(f, "Host(frozen: {}, dead: {})", state.frozen, state.dead)
    }
}

/// Makes the host the current one until it is dropped.
struct Entered(Option<Arc<Host>>);

fn enter(host: &Arc<Host>) -> Entered {
    Entered(CURRENT.replace(Some(Arc::clone(host))))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// See [`Host::reside`].
pub struct Resident(#[expect(dead_code, reason = "its drop is what counts")] Entered);

/// A task on a host.
struct OnHost<F> {
    host: Arc<Host>,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for OnHost<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        if self.host.suspends(task) {
            return Poll::Pending;
        }
        let _entered = enter(&self.host);
        match &mut self.work {
            Some(work) => work.as_mut().poll(task),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for OnHost<F> {
    fn drop(&mut self) {
        let _entered = enter(&self.host);
        drop(self.work.take());
    }
}

/// The current host's chance; that of the process where there is none.
pub(crate) struct HostRng;

impl HostRng {
    fn with<T>(draw: impl FnOnce(&mut dyn RngCore) -> T) -> T {
        let host = CURRENT.with_borrow(Clone::clone);
        match host {
            Some(host) => draw(&mut *lock(&host.rng)),
            None => draw(&mut rand::rng()),
        }
    }
}

impl RngCore for HostRng {
    fn next_u32(&mut self) -> u32 {
        Self::with(|rng| rng.next_u32())
    }

    fn next_u64(&mut self) -> u64 {
        Self::with(|rng| rng.next_u64())
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        Self::with(|rng| rng.fill_bytes(bytes));
    }
}

/// Where a client runs when it is simulated.
#[derive(Clone)]
pub(crate) struct Simulation {
    pub(crate) host: Arc<Host>,
    pub(crate) network: Arc<dyn Network>,
}
