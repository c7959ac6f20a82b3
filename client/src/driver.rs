//! The client's own thread.
//!
//! Everything that keeps sessions alive runs here: the stream, keep-alives, timers, releases of
//! what was dropped. So an application that blocks its executor, or uses none, loses no session by
//! that, and every future of this crate completes on any executor.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Keeps the client's thread running. The thread ends soon after the last one is dropped; nobody
/// waits for it.
pub(crate) struct Tether {
    _stop: oneshot::Sender<()>,
}

/// Starts the thread; returns the way to run tasks on it.
pub(crate) fn start() -> io::Result<(Handle, Tether)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    thread::Builder::new()
        .name("ringfence-client".into())
        .spawn(move || {
            // The sender is never used: dropping it is the signal.
            drop(runtime.block_on(stopped));
        })?;
    Ok((handle, Tether { _stop: stop }))
}
