//! The demo as it is printed: a line for each step while it happens, and the drawing of it.

use std::time::Duration;

use ringfence_client::{BootClock, Clock, Moment};
use serde_json::json;

use super::timeline::Timeline;
use crate::cli::Failure;
use crate::cli::output::Output;

/// One act being printed.
pub(super) struct Tale {
    act: u8,
    began: Moment,
    output: Output,
    pub(super) drawing: Timeline,
}

impl Tale {
    /// Begins to tell an act.
    pub(super) fn begin(act: u8, output: Output) -> Self {
        Self {
            act,
            began: BootClock.now(),
            output,
            drawing: Timeline::new(),
        }
    }

    /// The time since the act began.
    pub(super) fn now(&self) -> Duration {
        BootClock.now().saturating_since(self.began)
    }

    /// Tells one step.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn tell(&self, who: &str, text: impl AsRef<str>) -> Result<(), Failure> {
        let (at, text) = (self.now(), text.as_ref());
        let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let object = json!({ "act": self.act, "at_ms": at_ms, "who": who, "text": text });
        self.output.result(
            &object,
            format!("{:>6.2} s  {who:<11}  {text}", at.as_secs_f64()),
        )
    }
}
