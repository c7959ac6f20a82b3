//! Signals that end a command: Ctrl-C and its like.

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::exit;

/// Waits for SIGINT, SIGTERM or SIGHUP, and returns its number.
pub(crate) async fn stop() -> u8 {
    let mut waits = Vec::new();
    for (number, kind) in [
        (2, SignalKind::interrupt()),
        (15, SignalKind::terminate()),
        (1, SignalKind::hangup()),
    ] {
        // Without a handler the signal keeps its default: it ends the process.
        if let Ok(mut signal) = signal(kind) {
            waits.push(Box::pin(async move {
                signal.recv().await;
                number
            }));
        }
    }
    if waits.is_empty() {
        return std::future::pending().await;
    }
    futures_util::future::select_all(waits).await.0
}

/// A command that a signal interrupted before it was done.
pub(crate) fn interrupted(signal: u8) -> Failure {
    let message = format!("interrupted by signal {signal}; nothing is held");
    Failure::new(exit::SIGNAL_BASE + signal, "INTERRUPTED", message)
}
