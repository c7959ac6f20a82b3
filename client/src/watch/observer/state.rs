//! What the observers of one watch know, and what each receives.

use std::collections::BTreeMap;

use ringfence_core::{FencingToken, LeaseName};

use crate::watch::WatchItem;
use crate::watch::info::{EndInfo, GrantInfo};

pub(super) type Callback = Box<dyn Fn(Option<GrantInfo>) + Send + Sync>;

/// What the observers of one watch know.
pub(super) struct State {
    names: BTreeMap<LeaseName, ObservedName>,
    /// How many of them the running watch has not reported the present state of.
    uncovered: usize,
    /// The watch has still to tell the present state, or the rest of it.
    pub(super) in_state: bool,
    last_number: u64,
}

#[derive(Default)]
struct ObservedName {
    present: Option<GrantInfo>,
    /// The running watch has begun after this name was followed, so it tells all of it.
    covered: bool,
    observers: BTreeMap<u64, Callback>,
}

/// What an item of the watch brings.
#[derive(Debug, PartialEq)]
pub(crate) enum WatchUpdate {
    /// A grant of this name.
    Granted(LeaseName),
    /// The end of a grant.
    Ended(EndInfo),
    /// The tokens in force, of all names that are followed and reported.
    Present(BTreeMap<LeaseName, Option<FencingToken>>),
}

impl State {
    pub(super) const fn new() -> Self {
        Self {
            names: BTreeMap::new(),
            uncovered: 0,
            in_state: true,
            last_number: 0,
        }
    }

    pub(super) fn join(&mut self, name: &LeaseName, callback: Callback) -> u64 {
        self.last_number += 1;
        let observed = self.names.entry(name.clone()).or_insert_with(|| {
            self.uncovered += 1;
            ObservedName::default()
        });
        if observed.covered && !self.in_state {
            callback(observed.present.clone());
        }
        observed.observers.insert(self.last_number, callback);
        self.last_number
    }

    /// The token in force; `None` if the running watch has not reported this name.
    pub(super) fn present(&self, name: &LeaseName) -> Option<Option<FencingToken>> {
        let observed = self.names.get(name).filter(|observed| observed.covered);
        let observed = observed.filter(|_| !self.in_state)?;
        Some(observed.present.as_ref().map(|grant| grant.token))
    }

    pub(super) fn leave(&mut self, name: &LeaseName, number: u64) -> Option<Callback> {
        let observed = self.names.get_mut(name)?;
        let left = observed.observers.remove(&number);
        if observed.observers.is_empty() {
            self.uncovered -= usize::from(!observed.covered);
            self.names.remove(name);
        }
        left
    }

    /// Whether the watch has reported what it began with, but not all names. What has begun is
    /// reported to its end first, or no observer would receive anything while one name after the
    /// other joins.
    pub(super) fn is_incomplete(&self) -> bool {
        self.uncovered > 0 && !self.in_state
    }

    /// Takes what the watch tells; returns what sessions and observers have to know.
    pub(super) fn take(&mut self, item: WatchItem) -> Option<WatchUpdate> {
        match item {
            WatchItem::Restarted(_) => {
                self.in_state = true;
                self.uncovered = 0;
                for observed in self.names.values_mut() {
                    observed.covered = true;
                    observed.present = None;
                }
                None
            }
            WatchItem::Present(lease) => {
                self.covered(&lease.name)?.present = lease.holder;
                None
            }
            WatchItem::Granted { grant, .. } => {
                let name = grant.name.clone();
                self.covered(&name)?.present = Some(grant);
                Some(WatchUpdate::Granted(name))
            }
            WatchItem::Ended { ended, .. } => {
                let observed = self.covered(&ended.name)?;
                let present = observed.present.take();
                observed.present = present.filter(|grant| grant.token != ended.token);
                Some(WatchUpdate::Ended(ended))
            }
            WatchItem::Reached(_) if self.in_state => {
                self.in_state = false;
                let covered = self.names.iter().filter(|(_, observed)| observed.covered);
                let token = |observed: &ObservedName| observed.present.as_ref().map(|g| g.token);
                let present = covered.map(|(name, observed)| (name.clone(), token(observed)));
                Some(WatchUpdate::Present(present.collect()))
            }
            WatchItem::Reached(_) => None,
        }
    }

    /// Tells the observers of the names that there is news of.
    pub(super) fn notify(&self, update: &WatchUpdate) {
        let notify = |name: &LeaseName| {
            if let Some(observed) = self.names.get(name) {
                let observers = observed.observers.values();
                observers.for_each(|callback| callback(observed.present.clone()));
            }
        };
        match update {
            // Half of the present state is reported to no observer.
            WatchUpdate::Granted(_) | WatchUpdate::Ended(_) if self.in_state => {}
            WatchUpdate::Granted(name) => notify(name),
            WatchUpdate::Ended(ended) => notify(&ended.name),
            WatchUpdate::Present(present) => present.keys().for_each(notify),
        }
    }

    fn covered(&mut self, name: &LeaseName) -> Option<&mut ObservedName> {
        self.names.get_mut(name).filter(|observed| observed.covered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ringfence_proto::v1;

    use super::*;
    use crate::sync::lock;
    use crate::watch::RestartReason;
    use crate::watch::info::LeaseInfo;

    fn name(text: &str) -> LeaseName {
        LeaseName::parse(text).expect("a name")
    }

    fn grant(of: &str, token: u64) -> v1::Grant {
        v1::Grant {
            name: of.into(),
            token,
            session: 3,
            ..v1::Grant::default()
        }
    }

    fn present(of: &str, token: u64) -> WatchItem {
        let lease = v1::Lease {
            name: of.into(),
            holder: Some(grant(of, token)),
            ..v1::Lease::default()
        };
        WatchItem::Present(LeaseInfo::from_wire(lease).expect("it makes sense"))
    }

    fn position() -> crate::Position {
        "09090909090909090909090909090909.5.0"
            .parse()
            .expect("a position")
    }

    fn granted(of: &str, token: u64) -> WatchItem {
        WatchItem::Granted {
            grant: GrantInfo::from_wire(grant(of, token)).expect("it makes sense"),
            position: position(),
        }
    }

    fn ended(of: &str, token: u64) -> WatchItem {
        let ended = v1::GrantEnded {
            name: of.into(),
            token,
            session: 3,
            ..v1::GrantEnded::default()
        };
        WatchItem::Ended {
            ended: EndInfo::from_wire(ended).expect("it makes sense"),
            position: position(),
        }
    }

    /// The tokens that an observer received, 0 for none.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<u64>>>);

    impl Told {
        fn callback(&self) -> Callback {
            let told = self.clone();
            Box::new(move |grant| lock(&told.0).push(grant.map_or(0, |g| g.token.get())))
        }

        fn so_far(&self) -> Vec<u64> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    fn play(state: &mut State, items: impl IntoIterator<Item = WatchItem>) {
        for item in items {
            if let Some(update) = state.take(item) {
                state.notify(&update);
            }
        }
    }

    #[test]
    fn each_observer_is_told_of_its_own_name_and_of_nothing_half_told() {
        let (one, two) = (Told::default(), Told::default());
        let mut state = State::new();
        state.join(&name("jobs/1"), one.callback());
        state.join(&name("jobs/2"), two.callback());
        let begins = [
            WatchItem::Restarted(RestartReason::Start),
            present("jobs/1", 7),
            present("jobs/10", 8),
        ];
        play(&mut state, begins);
        assert_eq!((one.so_far(), two.so_far()), (vec![], vec![]));

        play(&mut state, [WatchItem::Reached(position())]);
        assert_eq!((one.so_far(), two.so_far()), (vec![7], vec![0]));

        play(
            &mut state,
            [ended("jobs/1", 7), granted("jobs/2", 9), ended("jobs/2", 6)],
        );
        assert_eq!((one.so_far(), two.so_far()), (vec![0], vec![9, 9]));
    }

    #[test]
    fn one_that_joins_later_is_told_what_is_known_or_waits_for_a_new_watch() {
        let mut state = State::new();
        state.join(&name("jobs/1"), Told::default().callback());
        let begins = [
            WatchItem::Restarted(RestartReason::Start),
            present("jobs/1", 7),
        ];
        play(
            &mut state,
            begins.into_iter().chain([WatchItem::Reached(position())]),
        );

        let (same, other) = (Told::default(), Told::default());
        state.join(&name("jobs/1"), same.callback());
        state.join(&name("jobs/2"), other.callback());
        assert_eq!(same.so_far(), [7]);
        assert!(state.is_incomplete());
        // Its present state is not known, so nothing is.
        play(&mut state, [granted("jobs/2", 9), ended("jobs/2", 9)]);
        assert_eq!(other.so_far(), []);

        let again = [
            WatchItem::Restarted(RestartReason::Start),
            present("jobs/2", 11),
        ];
        play(
            &mut state,
            again.into_iter().chain([WatchItem::Reached(position())]),
        );
        assert!(!state.is_incomplete());
        assert_eq!((same.so_far(), other.so_far()), (vec![0], vec![11]));
    }

    #[test]
    fn what_nobody_observes_is_forgotten() {
        let mut state = State::new();
        let first = state.join(&name("jobs/1"), Told::default().callback());
        let second = state.join(&name("jobs/1"), Told::default().callback());
        assert!(state.leave(&name("jobs/1"), first).is_some());
        assert_eq!(state.names.len(), 1);
        assert!(state.leave(&name("jobs/1"), second).is_some());
        assert!(state.names.is_empty());
        assert_eq!(state.uncovered, 0);
    }
}
