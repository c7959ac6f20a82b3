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
use tracing::{info, warn};

use super::figures::Figures;
use super::look::look;
use super::watching::{self, Hint, Watch};

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

    /// Has the sessions of this Pod ended; `false` if nobody could say that it was done.
    fn ended(&self, uid: &PodUid, seen: PodSeen) -> impl Future<Output = bool> + Send;
}

/// Watches the Pods that sessions are bound to; see the crate's docs.
///
/// Let the leader alone [`run`](Watcher::run) it. Nothing breaks if two do: the end of a Pod is an
/// end, whoever tells it, and however often.
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
            let wait = if trouble { AGAIN_AFTER } else { ALL_EVERY };

            tokio::select! {
                hint = hints.recv() => due.take(hint),
                () = self.opened.notified() => tokio::time::sleep(PACE).await,
                () = tokio::time::sleep(wait) => due.take(Some(Hint::All)),
                // The tasks have no end of their own; those that were aborted are taken away.
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
            while let Ok(hint) = hints.try_recv() {
                due.take(Some(hint));
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
                    warn!(%pod, trouble = %why, "nobody knows whether this Pod lives: its sessions stay");
                    self.figures.unanswered();
                    looked.trouble = true;
                }
            }
        }
        looked
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
    fn take(&mut self, hint: Option<Hint>) {
        match hint {
            None => {}
            Some(Hint::All) => self.all = true,
            Some(Hint::Namespace(namespace)) => {
                self.namespaces.insert(namespace);
            }
            Some(Hint::Pod { namespace, name }) => {
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
