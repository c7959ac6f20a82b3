//! A clock that runs with true time and can be stepped, as a suspended machine's clock is.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Moment, Sleep};
use tokio::sync::watch;

/// See the module.
pub(crate) struct SteppedClock {
    ahead: Arc<Mutex<Duration>>,
    steps: watch::Sender<()>,
    /// Whether sleepers notice a step at once, as those of an awake machine do.
    wakes: bool,
}

impl SteppedClock {
    pub(crate) fn new() -> Self {
        Self {
            ahead: Arc::default(),
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
        let ahead = Arc::clone(&self.ahead);
        let wakes = self.wakes;
        Box::pin(async move {
            loop {
                let now = BootClock.now() + *ahead.lock().unwrap();
                let left = moment.saturating_since(now);
                if left.is_zero() {
                    return;
                }
                let slept = BootClock.sleep_until(BootClock.now() + left);
                if !wakes {
                    return slept.await;
                }
                tokio::select! {
                    () = slept => {}
                    _ = steps.changed() => {}
                }
            }
        })
    }
}
