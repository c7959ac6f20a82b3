//! How long a test waits, and what a command has said.

use std::process::Output;
use std::thread;
use std::time::Duration;

/// How long anything may take that a test waits for, without the looks themselves.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(50);

#[allow(
    clippy::disallowed_methods,
    reason = "a thread of a test waits for processes; nothing else runs on it"
)]
pub(super) fn pause() {
    thread::sleep(GLANCE);
}

/// Looks again and again, for a limited time; whether it came true.
pub(super) fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    (0..PATIENCE.as_millis() / GLANCE.as_millis()).any(|_| {
        let is_true = holds();
        if !is_true {
            pause();
        }
        is_true
    })
}

/// What it has printed, on both streams.
pub(super) fn texts(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
