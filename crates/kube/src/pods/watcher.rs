//! The watcher at work: looks at bound Pods when there is a reason to, and tells of their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use kube::Client;
use ringfence_core::{Pod, PodSeen, PodUid};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

use super::figures::Figures;
use super::look::look;
use super::watching::{self, Hint, Watch};
use crate::sync_error::SyncError;

/// How many hints wait before a watch has to.
const HINTS_MAX: usize = 256;
/// How many Pods are read at once.
const READS_MAX: usize = 8;
/// All bound Pods are looked at this often, whatever the watches say.
const ALL_EVERY: Duration = Duration::from_secs(30);
/// After trouble all are looked at again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Between two looks at which sessions there are.
const PACE: Duration = Duration::from_millis(50);

/// Where the watcher learns which Pods matter, and whom it tells of their ends.
pub trait Bound: Send + Sync + 'static {
    /// The Pods that living sessions are bound to, as applied here and now.
    fn pods(&self) -> Vec<Pod>;

    /// Has the sessions of this Pod ended; `false` if no node could say that it was done.
    fn ended(&self, uid: &PodUid, seen: PodSeen) -> impl Future<Output = bool> + Send;
}

/// Watches the Pods that sessions are bound to; see the crate's docs.
///
/// Let the leader alone [`run`](Watcher::run) it. Nothing breaks if two do: the end of a Pod is an
/// end, from any source, and however often.
pub struct Watcher<B> {
    bound: Arc<B>,
    client: Client,
    figures: Figures,
    opened: Notify,
}

impl<B: Bound> Watcher<B> {
    /// A watcher that rests.
    #[must_use]
    pub fn new(bound: B, client: Client, figures: Figures) -> Self {
        Self {
            bound: Arc::new(bound),
            client,
            figures,
            opened: Notify::new(),
        }
    }

    /// A session was opened: it may be bound to a Pod. Never waits.
    pub fn note(&self) {
        self.opened.notify_one();
    }

    /// Watches for as long as it is polled; drop it to stop. It begins with all bound Pods.
    pub async fn run(&self) -> Infallible {
        let _active = self.figures.begin();
        let (tell, mut hints) = mpsc::channel(HINTS_MAX);
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<String, Watch> = BTreeMap::new();
        let mut nodes: Option<Watch> = None;
        let mut known = BTreeSet::new();
        let mut due = Due::default();
        let mut rounds = Rounds::begin(ALL_EVERY).await;
        loop {
            let pods = self.bound.pods();
            // A namespace is looked at when its watch has begun, so that nothing falls in between.
            watches.retain(|namespace, _| pods.iter().any(|pod| pod.namespace() == namespace));
            for pod in &pods {
                let namespace = pod.namespace().to_owned();
                watches.entry(namespace).or_insert_with(|| {
                    let (client, figures) = (&self.client, self.figures.clone());
                    watching::pods(&mut tasks, client, figures, pod.namespace(), tell.clone())
                });
            }
            if pods.is_empty() {
                nodes = None;
            } else if nodes.is_none() {
                let (client, figures) = (&self.client, self.figures.clone());
                nodes = Some(watching::nodes(&mut tasks, client, figures, tell.clone()));
            }
            let watches = watches.len() + usize::from(nodes.is_some());
            let uids: BTreeSet<&PodUid> = pods.iter().map(Pod::uid).collect();
            self.figures.follows(uids.len(), pods.len(), watches);
            let new = pods.iter().filter(|pod| !known.contains(*pod)).cloned();
            due.pods.extend(new);
            let meant = pods.iter().filter(|pod| due.means(pod)).cloned().collect();
            known = pods.into_iter().collect();
            let Looked { trouble, ended } = self.look_at(meant).await;
            self.figures.looked(!trouble);
            // What had no answer is looked at again, also if a hint at another Pod comes first.
            due = Due {
                all: trouble,
                ..Due::default()
            };
            if ended && !trouble {
                // There is less to follow now.
                continue;
            }
            tokio::select! {
                hint = rounds.next(&mut hints) => due.take(hint),
                () = self.opened.notified() => tokio::time::sleep(PACE).await,
                () = tokio::time::sleep(AGAIN_AFTER), if trouble => {}
                // The tasks have no end of their own; those that were aborted are taken away.
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
            while let Ok(hint) = hints.try_recv() {
                due.take(hint);
            }
        }
    }

    /// Reads these Pods, and tells of those that are over.
    async fn look_at(&self, pods: Vec<Pod>) -> Looked {
        let looks = stream::iter(pods).map(|pod| async move {
            let seen = look(&self.client, &pod).await;
            (pod, seen)
        });
        let mut looks = std::pin::pin!(looks.buffer_unordered(READS_MAX));
        let mut looked = Looked::default();
        let mut unanswered: Option<(usize, Pod, SyncError)> = None;
        while let Some((pod, seen)) = looks.next().await {
            match seen {
                Ok(None) => {}
                Ok(Some(seen)) => {
                    info!(%pod, %seen, "a Pod with sessions is over");
                    // More sessions than one entry may end are found at the next look.
                    let done = self.bound.ended(pod.uid(), seen).await;
                    if done {
                        self.figures.ended(seen);
                    }
                    looked.ended |= done;
                    looked.trouble |= !done;
                }
                Err(why) => {
                    self.figures.unanswered();
                    looked.trouble = true;
                    let (count, ..) = unanswered.get_or_insert((0, pod, why));
                    *count += 1;
                }
            }
        }
        // One line for all, since an API server that is away says nothing of any.
        if let Some((count, pod, trouble)) = unanswered {
            warn!(count, %pod, %trouble, "it is unknown whether these Pods live: their sessions stay");
        }
        looked
    }
}

/// What says where to look next: a watch, or that the time has come to look everywhere. That time
/// does not begin again with what a watch says, or in a busy namespace it would never come.
struct Rounds(Interval);

impl Rounds {
    async fn begin(every: Duration) -> Self {
        let mut all = tokio::time::interval(every);
        all.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is at once, and the watcher begins with all Pods anyway.
        let _now = all.tick().await;
        Self(all)
    }

    async fn next(&mut self, hints: &mut mpsc::Receiver<Hint>) -> Hint {
        tokio::select! {
            biased;
            _ = self.0.tick() => Hint::All,
            Some(hint) = hints.recv() => hint,
        }
    }
}

/// What came of looks at Pods.
#[derive(Debug, Default)]
struct Looked {
    /// Something stays to be done.
    trouble: bool,
    /// The sessions of a Pod were ended.
    ended: bool,
}

/// What is to be looked at.
#[derive(Debug, Default)]
struct Due {
    all: bool,
    namespaces: BTreeSet<String>,
    names: BTreeSet<(String, String)>,
    pods: BTreeSet<Pod>,
}

impl Due {
    fn take(&mut self, hint: Hint) {
        match hint {
            Hint::All => self.all = true,
            Hint::Namespace(namespace) => {
                self.namespaces.insert(namespace);
            }
            Hint::Pod { namespace, name } => {
                self.names.insert((namespace, name));
            }
        }
    }

    fn means(&self, pod: &Pod) -> bool {
        let name = (pod.namespace().to_owned(), pod.name().to_owned());
        self.all
            || self.namespaces.contains(pod.namespace())
            || self.names.contains(&name)
            || self.pods.contains(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_pods_are_looked_at_in_time_also_in_a_namespace_that_is_never_quiet() {
        let every = Duration::from_millis(100);
        let (tell, mut hints) = mpsc::channel(HINTS_MAX);
        let busy = async {
            let hint = Hint::Namespace("busy".to_owned());
            while tell.send(hint.clone()).await.is_ok() {
                tokio::time::sleep(every / 10).await;
            }
        };
        let looked = async {
            let mut rounds = Rounds::begin(every).await;
            while rounds.next(&mut hints).await != Hint::All {}
        };
        tokio::select! {
            () = busy => {}
            looked = tokio::time::timeout(every * 50, looked) => {
                assert!(looked.is_ok(), "not within {:?}", every * 50);
            }
        }
    }
}
