//! A clock that runs with true time and can be stepped, as a suspended machine's clock is.

use std::sync::Mutex;
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Moment, Sleep};
use tokio::sync::watch;

/// See the module.
pub(crate) struct SteppedClock {
    ahead: Mutex<Duration>,
    steps: watch::Sender<()>,
    /// Whether sleepers notice a step at once, as those of an awake machine do.
    wakes: bool,
}

impl SteppedClock {
    pub(crate) fn new() -> Self {
        Self {
            ahead: Mutex::default(),
            steps: watch::Sender::new(()),
            wakes: true,
        }
    }

    /// A clock whose timers do not notice steps: what a program sees whose threads have not yet run
    /// again since the machine woke up.
    pub(crate) fn asleep() -> Self {
        Self {
            wakes: false,
            ..Self::new()
        }
    }

    pub(crate) fn step(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
        self.steps.send_replace(());
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Moment {
        BootClock.now() + *self.ahead.lock().unwrap()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let mut steps = self.steps.subscribe();
        let left = moment.saturating_since(self.now());
        let wakes = self.wakes;
        let deadline = BootClock.now() + left;
        Box::pin(async move {
            if !wakes {
                return BootClock.sleep_until(deadline).await;
            }
            // After a step every sleeper looks again: waking early does no harm.
            tokio::select! {
                () = BootClock.sleep_until(deadline) => {}
                _ = steps.changed() => {}
            }
        })
    }
}
