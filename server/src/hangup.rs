//! SIGHUP, which asks for the audit log to be opened again. It never ends a node: what rotates files,
//! and a terminal that closes, may send it at any moment.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches it from now on, for the whole process. What comes before the returned signal is waited for
/// is kept, as one.
///
/// # Errors
/// If no signal can be caught.
pub(crate) fn catch() -> io::Result<Signal> {
    // The handler is the process's and outlasts this runtime. The one that the node runs on, which
    // can only be built once the configuration is known, passes on what has come by then.
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    signal(SignalKind::hangup())
}
