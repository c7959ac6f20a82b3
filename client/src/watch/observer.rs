//! Who holds a lease: few watches for the many leases that one client follows.
//!
//! Observers of one name share a watch. Once a client has [`OWN_MAX`] watches of single names in a
//! folder (`jobs/` is that of `jobs/17`), all further names in it share one watch of the folder. Once
//! it has [`WATCHES_MAX`] watches, further names share one of the topmost folder that they are in, and
//! one of everything if they are in none, or if there are [`FOLDERS_MAX`] more. A connection carries
//! at most 1,024 streams, and a node 10,000 watches: a client with a campaign for each of 2,000 shards
//! could otherwise not even send other requests.
//!
//! What a watch tells goes to the sessions first: one from which a grant was taken hears of it long
//! before the next keep-alive.

mod state;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName};
use tokio::sync::Notify;

use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::driver::{AbortOnDrop, KeepRunning};
use crate::transport::error::CallError;
use crate::watch::Watch;
use crate::watch::info::GrantInfo;

pub(crate) use state::WatchUpdate;
use state::{Callback, State};

/// How many names of one folder a client watches one by one before it watches the folder: a client
/// with a few leases should not receive the events of all leases.
const OWN_MAX: usize = 16;
/// How many watches a client begins for names and their folders.
const WATCHES_MAX: usize = 128;
/// How many it begins for topmost folders once it has those.
const FOLDERS_MAX: usize = 128;
/// A watch of a folder begins again for names that have joined, and at most this often.
const JOIN_EVERY: Duration = Duration::from_secs(1);
/// How long it takes until a watch is tried again that the cluster refused, by a server that has none
/// for example.
const REFUSED_EVERY: Duration = Duration::from_secs(30);

/// Follows a lease until it is dropped.
pub(crate) struct Observer {
    watch: Arc<SharedWatch>,
    name: LeaseName,
    number: u64,
}

/// The watches of a client.
pub(crate) struct SharedWatches {
    transport: Arc<Transport>,
    /// Gets all news before the observers do.
    hook: Arc<UpdateHook>,
    /// By what each tells of.
    running: Mutex<BTreeMap<String, Weak<SharedWatch>>>,
}

/// Who hears of something before the observers do.
type UpdateHook = dyn Fn(&WatchUpdate) + Send + Sync;

/// One watch, as long as an observer uses it.
struct SharedWatch {
    shared: Arc<Shared>,
    _task: AbortOnDrop<()>,
}

struct Shared {
    state: Mutex<State>,
    /// A name has joined that the running watch has not reported the present state of.
    joined: Notify,
}

impl Observer {
    /// The token in force, as far as the watch has reported; `None` if it has not reported this name
    /// yet, and does so soon.
    pub(crate) fn present(&self) -> Option<Option<FencingToken>> {
        lock(&self.watch.shared.state).present(&self.name)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let left = lock(&self.watch.shared.state).leave(&self.name, self.number);
        // What it holds goes without the lock.
        drop(left);
    }
}

impl SharedWatches {
    pub(crate) fn new(
        transport: Arc<Transport>,
        hook: impl Fn(&WatchUpdate) + Send + Sync + 'static,
    ) -> Self {
        Self {
            transport,
            hook: Arc::new(hook),
            running: Mutex::default(),
        }
    }

    /// Begins to follow `name`; `callback` gets the present grant at each change, `None` if there is
    /// none. It must not block, and must not follow anything. The client's thread runs as long as
    /// the watch does.
    pub(crate) fn observe(
        &self,
        keep_running: &Arc<KeepRunning>,
        name: LeaseName,
        callback: impl Fn(Option<GrantInfo>) + Send + Sync + 'static,
    ) -> Observer {
        let watch = self.of(keep_running, &name);
        let number = watch.shared.join(&name, Box::new(callback));
        Observer {
            watch,
            name,
            number,
        }
    }

    /// The watch that tells of this name: one that runs, or a new one.
    fn of(&self, keep_running: &Arc<KeepRunning>, name: &LeaseName) -> Arc<SharedWatch> {
        let mut streams = lock(&self.running);
        streams.retain(|_, watch| watch.strong_count() > 0);
        let prefix = prefix_for(
            name,
            streams.len(),
            |prefix| streams.contains_key(prefix),
            |folder| {
                let from_it = (Bound::Included(folder), Bound::Unbounded);
                let keys = streams.range::<str, _>(from_it).map(|(key, _)| key);
                let within = keys.map_while(|key| key.strip_prefix(folder));
                within.filter(|rest| !rest.contains('/')).count()
            },
        );
        match streams.entry(prefix) {
            btree_map::Entry::Occupied(mut running) => {
                // The last observer may have gone since it was looked at.
                running.get().upgrade().unwrap_or_else(|| {
                    let watch = self.begin(keep_running, running.key());
                    running.insert(Arc::downgrade(&watch));
                    watch
                })
            }
            btree_map::Entry::Vacant(free) => {
                let watch = self.begin(keep_running, free.key());
                free.insert(Arc::downgrade(&watch));
                watch
            }
        }
    }

    fn begin(&self, keep_running: &Arc<KeepRunning>, prefix: &str) -> Arc<SharedWatch> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            joined: Notify::new(),
        });
        let task = WatchTask {
            transport: Arc::clone(&self.transport),
            keep_running: Arc::clone(keep_running),
            hook: Arc::clone(&self.hook),
            shared: Arc::clone(&shared),
            prefix: prefix.to_owned(),
        };
        let task = self.transport.thread.spawn(task.run());
        Arc::new(SharedWatch {
            shared,
            _task: AbortOnDrop(task),
        })
    }
}

/// What to watch for this name: itself, a folder that it is in, or everything (the empty prefix). A
/// folder's key ends in a slash and a name's never does, so no two are the same.
fn prefix_for(
    name: &LeaseName,
    watches: usize,
    runs: impl Fn(&str) -> bool,
    running_in: impl Fn(&str) -> usize,
) -> String {
    let name = name.as_str();
    if runs(name) {
        return name.to_owned();
    }
    // From the nearest one to everything.
    let mut folders = name.rmatch_indices('/').map(|(at, _)| &name[..=at]);
    let above = folders.clone().chain([""]);
    if let Some(running) = above.clone().find(|folder| runs(folder)) {
        return running.to_owned();
    }
    let nearest = folders.next();
    if watches < WATCHES_MAX {
        let crowded = nearest.filter(|folder| running_in(folder) >= OWN_MAX);
        return crowded.unwrap_or(name).to_owned();
    }
    let topmost = folders.next_back().or(nearest);
    let topmost = topmost.filter(|_| watches < WATCHES_MAX + FOLDERS_MAX);
    topmost.unwrap_or_default().to_owned()
}

impl Shared {
    fn join(&self, name: &LeaseName, callback: Callback) -> u64 {
        let number = lock(&self.state).join(name, callback);
        self.joined.notify_one();
        number
    }
}

/// The task of one watch.
struct WatchTask {
    transport: Arc<Transport>,
    keep_running: Arc<KeepRunning>,
    hook: Arc<UpdateHook>,
    shared: Arc<Shared>,
    prefix: String,
}

impl WatchTask {
    async fn run(self) {
        loop {
            if let Err(error) = self.watch().await {
                tracing::warn!(prefix = self.prefix, %error, "leases cannot be watched");
                self.transport.sleep(REFUSED_EVERY).await;
            }
        }
    }

    /// Watches until names have joined that the watch has not reported yet.
    async fn watch(&self) -> Result<(), CallError> {
        let shared = &self.shared;
        let mut watch = Watch::begin(
            &self.transport,
            &self.keep_running,
            self.prefix.clone(),
            None,
        );
        let clock = &self.transport.options.clock;
        let earliest = clock.now() + JOIN_EVERY;
        lock(&shared.state).in_state = true;
        loop {
            // A name that joined a running watch of a folder has no present state until the watch
            // starts again. At most once a second, or a burst of new campaigns would restart it for
            // each.
            let must_restart = lock(&shared.state).is_incomplete();
            let item = crate::sync::select! {
                item = watch.next() => item,
                () = shared.joined.notified() => continue,
                () = clock.sleep_until(earliest), if must_restart => return Ok(()),
            };
            let Some(item) = item.transpose()? else {
                return Ok(());
            };
            let update = lock(&shared.state).take(item);
            if let Some(update) = update {
                // The sessions before the observers: an elector that hears of a new leader must
                // find its own lease lost already. Without the lock, since the hook takes those of
                // the sessions.
                (self.hook)(&update);
                lock(&shared.state).notify(&update);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LeaseName {
        LeaseName::parse(text).expect("a name")
    }

    #[test]
    fn names_are_watched_one_by_one_until_there_are_many_in_a_folder() {
        let none = |_: &str| false;
        assert_eq!(prefix_for(&name("db"), 1, none, |_| 1_000), "db");
        assert_eq!(
            prefix_for(&name("a/b/c"), 1, none, |_| OWN_MAX - 1),
            "a/b/c"
        );
        assert_eq!(prefix_for(&name("a/b/c"), 1, none, |_| OWN_MAX), "a/b/");
        // A watch that runs reports it.
        for running in ["", "a/", "a/b/"] {
            let prefix = prefix_for(&name("a/b/c"), 1, |key| key == running, |_| 0);
            assert_eq!(prefix, running);
        }
        let own = prefix_for(&name("a/b/c"), 1, |key| key == "a/b/c", |_| OWN_MAX);
        assert_eq!(own, "a/b/c");
    }

    #[test]
    fn a_client_with_many_watches_begins_none_for_single_names() {
        let none = |_: &str| false;
        let prefix = |text: &str, watches| prefix_for(&name(text), watches, none, |_| 0);
        assert_eq!(prefix("a/b/c", WATCHES_MAX - 1), "a/b/c");
        assert_eq!(prefix("a/b/c", WATCHES_MAX), "a/");
        assert_eq!(prefix("a/c", WATCHES_MAX), "a/");
        assert_eq!(prefix("db", WATCHES_MAX), "");
        assert_eq!(prefix("a/c", WATCHES_MAX + FOLDERS_MAX), "");
    }
}
