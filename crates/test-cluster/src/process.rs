//! A client's process: the real client, on a host that can be paused, behind a link that can be cut.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::sim::Host;
use ringfence_client::{Client, Clock, Moment, Sleep};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::flag::Flag;
use crate::lock::lock;
use crate::story::Story;

/// A client of a [`TestCluster`](crate::TestCluster), and the process that it lives in. It is used
/// as the [`Client`] that it holds; clones are the same process.
#[derive(Clone)]
pub struct TestClient {
    pub(crate) client: Client,
    pub(crate) process: Arc<Process>,
}

impl TestClient {
    /// The process's name in stories.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.process.name
    }

    /// The client, for a service that takes one.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

impl Deref for TestClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestClient({})", self.process.name)
    }
}

/// A process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) host: Arc<Host>,
    story: Story,
    /// For its streams, in the order in which it opens them.
    pub(crate) chance: Chance,
    paused: Flag,
    cut: Flag,
    /// Whether it is to be paused when the next answer of a store has reached it.
    ambushed: AtomicBool,
    /// For how long a call of a store is held up in the network, and how many come before it.
    delay: Mutex<(u64, Duration)>,
    /// When the last call arrives that is held up.
    held_until: Mutex<Option<Duration>>,
}

impl Process {
    pub(crate) fn new(name: &str, host: Arc<Host>, chance: Chance, story: Story) -> Self {
        Self {
            name: name.to_owned(),
            host,
            story,
            chance,
            paused: Flag::new(false),
            cut: Flag::new(false),
            ambushed: AtomicBool::new(false),
            delay: Mutex::default(),
            held_until: Mutex::default(),
        }
    }

    pub(crate) fn pause(&self) {
        self.host.freeze();
        if !self.paused.set(true) {
            self.story.say(format_args!("{} is paused", self.name));
        }
    }

    pub(crate) fn resume(&self) {
        self.ambushed.store(false, Ordering::Relaxed);
        if self.paused.set(false) {
            self.story.say(format_args!("{} goes on", self.name));
        }
        self.host.thaw();
    }

    /// Pauses it at the next answer of a store.
    pub(crate) fn ambush(&self) {
        self.ambushed.store(true, Ordering::Relaxed);
    }

    /// Holds a call of a store up, behind so many that are not.
    pub(crate) fn delay(&self, behind: u64, by: Duration) {
        *lock(&self.delay) = (behind, by);
    }

    /// For how long the call that it makes now is held up.
    pub(crate) fn take_delay(&self) -> Duration {
        let mut delay = lock(&self.delay);
        if delay.0 > 0 {
            delay.0 -= 1;
            return Duration::ZERO;
        }
        let (_, by) = std::mem::take(&mut *delay);
        if !by.is_zero() {
            let name = &self.name;
            let mut held = lock(&self.held_until);
            *held = (*held).max(Some(self.story.time().saturating_add(by)));
            self.story.say(format_args!(
                "a call of a store by {name} is held up for {by:?}"
            ));
        }
        by
    }

    /// When in the story the last call arrives that is held up; `None` if none was.
    pub(crate) fn held_until(&self) -> Option<Duration> {
        *lock(&self.held_until)
    }

    /// An answer of a store has reached it.
    pub(crate) fn reached(&self) {
        if self.ambushed.swap(false, Ordering::Relaxed) {
            self.pause();
        }
    }

    /// Completes while it is not paused: for tasks that it has spawned with tokio's own `spawn`,
    /// which its host does not know.
    pub(crate) async fn runs(&self) {
        self.paused.is(false).await;
    }

    pub(crate) fn cut(&self, cut: bool) {
        if self.cut.set(cut) != cut {
            let what = if cut { "loses" } else { "has" };
            self.story
                .say(format_args!("{} {what} its way to the cluster", self.name));
        }
    }

    /// Completes while the link is there.
    pub(crate) async fn link(&self) {
        self.cut.is(false).await;
    }
}

/// The paused clock of the runtime, as the boot clock of every process.
pub(crate) struct WorldClock(pub(crate) Instant);

impl Clock for WorldClock {
    fn now(&self) -> Moment {
        // A boot clock that shows zero is a rare case of its own; a minute is none.
        Moment::from_boot(UP + self.0.elapsed())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let at = self.0 + moment.since_boot().saturating_sub(UP);
        Box::pin(tokio::time::sleep_until(at))
    }
}

/// For how long the machines have been up when a world begins.
const UP: Duration = Duration::from_secs(60);
