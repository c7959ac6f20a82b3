//! What the run tells: a line for each thing that was shown, with the time it took.

use std::time::{Duration, Instant};

/// A clock that tells people how long something took.
#[derive(Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    /// From now on.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long something took is shown to a person"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Since the start.
    pub(crate) fn so_far(self) -> Duration {
        self.0.elapsed()
    }
}

/// Tells that something holds, and in what time it was shown.
pub(crate) fn shown(watch: Watch, what: &str) {
    println!("  {:6.1} s  {what}", watch.so_far().as_secs_f64());
}

/// Tells something beside.
pub(crate) fn note(what: &str) {
    println!("            {what}");
}
