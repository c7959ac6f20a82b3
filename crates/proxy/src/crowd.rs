//! All connections of callers. Where there is room for no more, the one gives way that has been without a
//! request for longest.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::clock::now;

/// How long a new connection waits before another one is asked to give way.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections, and the room for them.
pub(crate) struct Crowd {
    room: Arc<Semaphore>,
    members: Mutex<Vec<Activity>>,
}

/// A connection in the crowd, until this is dropped.
pub(crate) struct Member {
    crowd: Arc<Crowd>,
    pub(crate) activity: Activity,
    _place: OwnedSemaphorePermit,
}

/// How many requests a connection has, and since when so many.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    gives_way: Notify,
}

struct State {
    requests: usize,
    since: Instant,
    is_asked: bool,
}

/// A request of a connection, until its answer has ended.
pub(crate) struct Count(Activity);

impl Crowd {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(connections)),
            members: Mutex::default(),
        }
    }

    /// Has room for one, once another one has ended or has given way.
    pub(crate) async fn enter(self: &Arc<Self>) -> Member {
        loop {
            if self.room.available_permits() == 0 {
                self.displace();
            }
            let place = Arc::clone(&self.room).acquire_owned();
            if let Ok(Ok(place)) = timeout(PAUSE, place).await {
                let activity = Activity::new();
                self.members.lock().push(activity.clone());
                return Member {
                    crowd: Arc::clone(self),
                    activity,
                    _place: place,
                };
            }
        }
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&self, connections: usize) -> bool {
        let all = u32::try_from(connections).unwrap_or(u32::MAX);
        self.room.acquire_many(all).await.is_ok()
    }

    fn displace(&self) {
        let members = self.members.lock();
        let idle = members.iter().filter_map(|member| {
            let state = member.0.state.lock();
            let is_idle = state.requests == 0 && !state.is_asked;
            is_idle.then_some((state.since, member))
        });
        if let Some((_, idlest)) = idle.min_by_key(|(since, _)| *since) {
            idlest.0.state.lock().is_asked = true;
            idlest.0.gives_way.notify_one();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.crowd.members.lock();
        members.retain(|member| !Arc::ptr_eq(&member.0, &self.activity.0));
    }
}

impl Activity {
    fn new() -> Self {
        let state = State {
            requests: 0,
            since: now(),
            is_asked: false,
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            gives_way: Notify::new(),
        }))
    }

    /// Ready when it is to give way, and has no request. The connection is asked for requests first.
    pub(crate) async fn gives_way(&self) {
        loop {
            self.0.gives_way.notified().await;
            let mut state = self.0.state.lock();
            if state.requests == 0 {
                return;
            }
            state.is_asked = false;
        }
    }

    pub(crate) fn begin(&self) -> Count {
        let mut state = self.0.state.lock();
        state.requests += 1;
        state.since = now();
        Count(self.clone())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.0.state.lock().requests > 0
    }

    /// When the connection has to end if nothing changes: so long with a request, and so long without.
    pub(crate) fn due(&self, longest: Duration, idle: Duration) -> Instant {
        let state = self.0.state.lock();
        state.since + if state.requests > 0 { longest } else { idle }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.requests = state.requests.saturating_sub(1);
        state.since = now();
    }
}
