//! Who holds a lease: few watches for the many leases that one client follows.
//!
//! Observers of one name share a watch. Once a client has [`OWN_MAX`] watches of single names in a
//! folder (`jobs/` is that of `jobs/17`), all further names in it share one watch of the folder. Once
//! it has [`WATCHES_MAX`] watches, further names share one of the topmost folder that they are in, and
//! one of everything if they are in none, or if there are [`FOLDERS_MAX`] more. A connection carries
//! at most 1,024 streams, and a node 10,000 watches: a client with a campaign for each of 2,000 shards
//! could otherwise not even send other requests.
//!
//! It also tells a session at once of a grant that was taken from it, long before the next keep-alive
//! would.

mod state;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName};
use tokio::sync::Notify;

use crate::client::Client;
use crate::driver::AbortOnDrop;
use crate::error::CallError;
use crate::hub::Hub;
use crate::info::GrantInfo;
use crate::sync::lock;
use state::{News, Saw, State};

/// How many names of one folder a client watches one by one before it watches the folder: a client
/// with a few leases should not be told of everybody's.
const OWN_MAX: usize = 16;
/// How many watches a client begins for names and their folders.
const WATCHES_MAX: usize = 128;
/// How many it begins for topmost folders once it has those.
const FOLDERS_MAX: usize = 128;
/// A watch of a folder begins anew for names that have joined, and at most this often.
const JOIN_EVERY: Duration = Duration::from_secs(1);
/// How long it takes until a watch is tried again that the cluster refused, by a server that has none
/// for example.
const REFUSED_EVERY: Duration = Duration::from_secs(30);

/// Follows a lease until it is dropped.
pub(crate) struct Observer {
    stream: Arc<Stream>,
    name: LeaseName,
    number: u64,
}

/// The watches of a client, by what each tells of.
#[derive(Default)]
pub(crate) struct Streams(Mutex<BTreeMap<String, Weak<Stream>>>);

/// One watch, as long as somebody observes something by it.
struct Stream {
    shared: Arc<Shared>,
    _task: AbortOnDrop<()>,
}

struct Shared {
    state: Mutex<State>,
    /// A name has joined that the running watch has not told the present state of.
    joined: Notify,
}

impl Observer {
    /// Begins to follow `name`; `saw` gets the present grant at each change, `None` if there is
    /// none. It must not block, and must not follow anything.
    pub(crate) fn begin(
        client: &Client,
        name: LeaseName,
        saw: impl Fn(Option<GrantInfo>) + Send + Sync + 'static,
    ) -> Self {
        let stream = client.hub.streams.of(client, &name);
        let number = stream.shared.join(&name, Box::new(saw));
        Self {
            stream,
            name,
            number,
        }
    }
}

impl Observer {
    /// The token in force, as far as the watch has reported; `None` if it has not reported this name
    /// yet, and does so soon.
    pub(crate) fn present(&self) -> Option<Option<FencingToken>> {
        lock(&self.stream.shared.state).present(&self.name)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let left = lock(&self.stream.shared.state).leave(&self.name, self.number);
        // What it holds goes without the lock.
        drop(left);
    }
}

impl Streams {
    /// The watch that tells of this name: one that runs, or a new one.
    fn of(&self, client: &Client, name: &LeaseName) -> Arc<Stream> {
        let mut streams = lock(&self.0);
        streams.retain(|_, stream| stream.strong_count() > 0);
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
                    let stream = Stream::begin(client, running.key());
                    running.insert(Arc::downgrade(&stream));
                    stream
                })
            }
            btree_map::Entry::Vacant(free) => {
                let stream = Stream::begin(client, free.key());
                free.insert(Arc::downgrade(&stream));
                stream
            }
        }
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

impl Stream {
    fn begin(client: &Client, prefix: &str) -> Arc<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            joined: Notify::new(),
        });
        let (client, prefix) = (client.clone(), prefix.to_owned());
        let following = Arc::clone(&shared);
        let task = Arc::clone(&client.hub).thread.spawn(async move {
            following.follow(&client, &prefix).await;
        });
        Arc::new(Self {
            shared,
            _task: AbortOnDrop(task),
        })
    }
}

impl Shared {
    fn join(&self, name: &LeaseName, saw: Saw) -> u64 {
        let number = lock(&self.state).join(name, saw);
        self.joined.notify_one();
        number
    }

    async fn follow(&self, client: &Client, prefix: &str) {
        loop {
            if let Err(error) = self.watch(client, prefix).await {
                tracing::warn!(prefix, %error, "leases cannot be watched");
                let hub = &client.hub;
                hub.options
                    .clock
                    .sleep_until(hub.now() + REFUSED_EVERY)
                    .await;
            }
        }
    }

    /// Watches until names have joined that the watch has not told of.
    async fn watch(&self, client: &Client, prefix: &str) -> Result<(), CallError> {
        let hub = &client.hub;
        let mut watch = client.watch(prefix);
        let earliest = hub.now() + JOIN_EVERY;
        lock(&self.state).presenting = true;
        loop {
            let begin_anew = lock(&self.state).is_incomplete();
            let item = tokio::select! {
                item = watch.next() => item,
                () = self.joined.notified() => continue,
                () = hub.options.clock.sleep_until(earliest), if begin_anew => return Ok(()),
            };
            let Some(item) = item.transpose()? else {
                return Ok(());
            };
            let news = lock(&self.state).take(item);
            if let Some(news) = news {
                tell_sessions(hub, &news);
                lock(&self.state).tell(&news);
            }
        }
    }
}

/// What was ours, and ended against our will, is believed in no longer.
fn tell_sessions(hub: &Hub, news: &News) {
    match news {
        News::Granted(_) => {}
        News::Ended(ended) => {
            let sessions = hub.sessions();
            let theirs = sessions.iter().filter(|s| s.id() == ended.session);
            theirs.for_each(|session| session.told_ended(ended.token, ended.cause.clone()));
        }
        News::Present(present) => {
            let sessions = hub.sessions();
            sessions
                .iter()
                .for_each(|session| session.told_present(present));
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
