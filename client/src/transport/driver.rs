//! The client's own thread.
//!
//! Everything that keeps sessions alive runs here: the stream, keep-alives, timers, releases of
//! what was dropped. So an application that blocks its executor, or uses none, loses no session by
//! that, and every future of this crate completes on any executor.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::transport::error::CallError;
use crate::transport::options::Options;

/// Keeps the client's thread running. The thread ends soon after the last one is dropped; no caller
/// waits for it.
pub(crate) struct KeepRunning {
    _stop: oneshot::Sender<()>,
}

/// The way to run tasks on the client's thread.
#[derive(Clone)]
pub(crate) struct Thread {
    handle: Handle,
    /// Where the tasks run instead, if they are simulated.
    #[cfg(feature = "sim")]
    host: Option<std::sync::Arc<crate::sim::Host>>,
}

impl Thread {
    /// Runs a task on the thread.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        #[cfg(feature = "sim")]
        if let Some(host) = &self.host {
            return host.spawn(work);
        }
        self.handle.spawn(work)
    }
}

/// Runs a piece of work on the client's thread; dropping the future stops it.
pub(crate) async fn on_thread<T: Send + 'static>(
    thread: &Thread,
    work: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let mut task = AbortOnDrop(thread.spawn(work));
    match (&mut task.0).await {
        Ok(result) => result,
        Err(_) => Err(CallError::stopped()),
    }
}

/// A task that ends when no caller waits for it any more.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the thread; returns the way to run tasks on it.
#[cfg_attr(
    not(feature = "sim"),
    expect(unused_variables, reason = "simulated clients have a place")
)]
pub(crate) fn start(options: &Options) -> io::Result<(Thread, KeepRunning)> {
    #[cfg(feature = "sim")]
    if let Some(simulation) = &options.simulation {
        return Ok(simulated(simulation));
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    thread::Builder::new()
        .name("ringfence-client".into())
        .spawn(move || {
            // The sender is never used: dropping it is the signal.
            drop(runtime.block_on(stopped));
        })?;
    let thread = Thread {
        handle,
        #[cfg(feature = "sim")]
        host: None,
    };
    Ok((thread, KeepRunning { _stop: stop }))
}

/// No thread at all: the simulation runs the tasks.
#[cfg(feature = "sim")]
fn simulated(simulation: &crate::sim::Simulation) -> (Thread, KeepRunning) {
    let thread = Thread {
        handle: Handle::current(),
        host: Some(std::sync::Arc::clone(&simulation.host)),
    };
    let (stop, _) = oneshot::channel();
    (thread, KeepRunning { _stop: stop })
}
