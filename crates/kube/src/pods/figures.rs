//! What the watcher of Pods tells of itself.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use ringfence_core::PodSeen;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    of: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Seen {
    seen: &'static str,
}

/// What a watch is of, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Pods,
    Nodes,
}

/// Figures of one node's watcher; clones are the same figures.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pods: Gauge<i64, AtomicI64>,
    sessions: Gauge<i64, AtomicI64>,
    watches: Gauge<i64, AtomicI64>,
    active: Gauge<i64, AtomicI64>,
    in_sync: Gauge<i64, AtomicI64>,
    restarts: Family<Of, Counter>,
    ended: Family<Seen, Counter>,
    unanswered: Counter,
    state: Arc<Mutex<State>>,
}

/// What being in sync is made of.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    active: bool,
    /// The newest look at all that was to be looked at had an answer for each Pod.
    looked: bool,
    /// Watches that there should be.
    wanted: usize,
    /// Watches that the API server has open.
    open: usize,
}

impl Figures {
    /// Adds them to what a node shows.
    pub fn register(&self, registry: &mut Registry) {
        // From zero on: what first appears with its first failure cannot be seen to rise.
        for of in ["pods", "nodes"] {
            drop(self.restarts.get_or_create(&Of { of }));
        }
        for seen in ["gone", "succeeded", "failed", "node_out_of_service"] {
            drop(self.ended.get_or_create(&Seen { seen }));
        }
        let registry = registry.sub_registry_with_prefix("kube_pods");
        registry.register(
            "followed",
            "Pods that living sessions are bound to, and that this node follows",
            self.pods.clone(),
        );
        registry.register(
            "sessions",
            "Sessions that are bound to these Pods",
            self.sessions.clone(),
        );
        registry.register(
            "watches",
            "Watches that the API server has open: one for each namespace with such a Pod, one of nodes",
            self.watches.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that were restarted after trouble: of pods, of nodes",
            self.restarts.clone(),
        );
        registry.register(
            "ended",
            "Pods seen to be over: gone, succeeded, failed, node_out_of_service",
            self.ended.clone(),
        );
        registry.register(
            "unanswered",
            "Looks at Pods of which it is unknown whether they live",
            self.unanswered.clone(),
        );
        registry.register(
            "active",
            "1 while this node follows Pods",
            self.active.clone(),
        );
        registry.register(
            "in_sync",
            "1 while this node follows Pods, every watch is open and every look has an answer",
            self.in_sync.clone(),
        );
    }

    /// Says that this node follows Pods, for as long as the returned value lives.
    pub(super) fn begin(&self) -> Active {
        self.change(|state| state.active = true);
        Active(self.clone())
    }

    /// What is followed from now on, by so many watches.
    pub(super) fn follows(&self, pods: usize, sessions: usize, watches: usize) {
        self.pods.set(figure(pods));
        self.sessions.set(figure(sessions));
        self.change(|state| state.wanted = watches);
    }

    /// Whether each Pod that was to be looked at had an answer.
    pub(super) fn looked(&self, answered: bool) {
        self.change(|state| state.looked = answered);
    }

    /// The API server has not said what became of a Pod.
    pub(super) fn unanswered(&self) {
        self.unanswered.inc();
    }

    /// A Pod is over.
    pub(super) fn ended(&self, seen: PodSeen) {
        let seen = match seen {
            PodSeen::Gone => "gone",
            PodSeen::Succeeded => "succeeded",
            PodSeen::Failed => "failed",
            PodSeen::NodeOutOfService => "node_out_of_service",
            // Reported when the next session is opened, and never by a look.
            PodSeen::Restarted => return,
        };
        self.ended.get_or_create(&Seen { seen }).inc();
    }

    /// Says that a watch is open, for as long as the returned value lives.
    pub(super) fn open(&self) -> Open {
        self.change(|state| state.open += 1);
        Open(self.clone())
    }

    /// A watch is begun again.
    pub(super) fn restarted(&self, of: Watched) {
        let of = match of {
            Watched::Pods => "pods",
            Watched::Nodes => "nodes",
        };
        self.restarts.get_or_create(&Of { of }).inc();
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let in_sync = state.active && state.looked && state.open >= state.wanted;
        // Under the lock, so that the figures end as the state does.
        self.active.set(i64::from(state.active));
        self.watches.set(figure(state.open));
        self.in_sync.set(i64::from(in_sync));
    }
}

fn figure(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Ends with the watching.
pub(super) struct Active(Figures);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.follows(0, 0, 0);
        self.0.change(|state| {
            state.active = false;
            state.looked = false;
        });
    }
}

/// Ends with the watch.
pub(super) struct Open(Figures);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.change(|state| state.open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_sync(figures: &Figures) -> bool {
        figures.in_sync.get() == 1
    }

    #[test]
    fn it_is_in_sync_while_every_watch_is_open_and_every_look_has_an_answer() {
        let figures = Figures::default();
        let active = figures.begin();
        assert!(!is_in_sync(&figures), "nothing was looked at yet");
        figures.follows(3, 4, 2);
        figures.looked(true);
        let pods = figures.open();
        assert!(!is_in_sync(&figures), "a watch is missing");
        let nodes = figures.open();
        assert!(is_in_sync(&figures));

        figures.looked(false);
        assert!(!is_in_sync(&figures), "a look had no answer");
        figures.looked(true);
        drop(nodes);
        assert!(!is_in_sync(&figures), "a watch has ended");
        let nodes = figures.open();
        assert!(is_in_sync(&figures));

        drop(active);
        assert!(!is_in_sync(&figures));
        assert_eq!((figures.pods.get(), figures.sessions.get()), (0, 0));
        drop((pods, nodes));
        assert_eq!(figures.watches.get(), 0);
    }

    #[test]
    fn what_happened_is_shown() {
        let mut registry = Registry::with_prefix("ringfence");
        let figures = Figures::default();
        figures.register(&mut registry);
        let _active = figures.begin();
        figures.follows(3, 4, 2);
        figures.restarted(Watched::Nodes);
        figures.ended(PodSeen::Gone);

        let mut shown = String::new();
        prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
        for line in [
            "ringfence_kube_pods_followed 3",
            "ringfence_kube_pods_sessions 4",
            "ringfence_kube_pods_watch_restarts_total{of=\"nodes\"} 1",
            "ringfence_kube_pods_watch_restarts_total{of=\"pods\"} 0",
            "ringfence_kube_pods_ended_total{seen=\"gone\"} 1",
            "ringfence_kube_pods_active 1",
            "ringfence_kube_pods_in_sync 0",
        ] {
            assert!(shown.contains(line), "{line} is not in\n{shown}");
        }
    }
}
