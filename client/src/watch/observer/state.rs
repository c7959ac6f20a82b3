//! What the observers of one watch know, and what each receives.

use std::collections::BTreeMap;

use ringfence_core::{FencingToken, LeaseName};

use crate::watch::WatchItem;
use crate::watch::info::{EndInfo, GrantInfo};

pub(super) type Saw = Box<dyn Fn(Option<GrantInfo>) + Send + Sync>;

/// What the observers of one watch know.
pub(super) struct State {
    names: BTreeMap<LeaseName, Followed>,
    /// How many of them the running watch has not reported the present state of.
    uncovered: usize,
    /// The watch has still to tell the present state, or the rest of it.
    pub(super) presenting: bool,
    last_number: u64,
}

#[derive(Default)]
struct Followed {
    present: Option<GrantInfo>,
    /// The running watch has begun after this name was followed, so it tells all of it.
    covered: bool,
    observers: BTreeMap<u64, Saw>,
}

/// What an item of the watch brings.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
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
            presenting: true,
            last_number: 0,
        }
    }

    pub(super) fn join(&mut self, name: &LeaseName, saw: Saw) -> u64 {
        self.last_number += 1;
        let followed = self.names.entry(name.clone()).or_insert_with(|| {
            self.uncovered += 1;
            Followed::default()
        });
        if followed.covered && !self.presenting {
            saw(followed.present.clone());
        }
        followed.observers.insert(self.last_number, saw);
        self.last_number
    }

    /// The token in force; `None` if the running watch has not reported this name.
    pub(super) fn present(&self, name: &LeaseName) -> Option<Option<FencingToken>> {
        let followed = self.names.get(name).filter(|followed| followed.covered);
        let followed = followed.filter(|_| !self.presenting)?;
        Some(followed.present.as_ref().map(|grant| grant.token))
    }

    pub(super) fn leave(&mut self, name: &LeaseName, number: u64) -> Option<Saw> {
        let followed = self.names.get_mut(name)?;
        let left = followed.observers.remove(&number);
        if followed.observers.is_empty() {
            self.uncovered -= usize::from(!followed.covered);
            self.names.remove(name);
        }
        left
    }

    /// Whether the watch has reported what it began with, but not all names. What has begun is
    /// reported to its end first, or no observer would receive anything while one name after the
    /// other joins.
    pub(super) fn is_incomplete(&self) -> bool {
        self.uncovered > 0 && !self.presenting
    }

    /// Takes what the watch tells; returns what sessions and observers have to know.
    pub(super) fn take(&mut self, item: WatchItem) -> Option<News> {
        match item {
            WatchItem::Anew(_) => {
                self.presenting = true;
                self.uncovered = 0;
                for followed in self.names.values_mut() {
                    followed.covered = true;
                    followed.present = None;
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
                Some(News::Granted(name))
            }
            WatchItem::Ended { ended, .. } => {
                let followed = self.covered(&ended.name)?;
                let present = followed.present.take();
                followed.present = present.filter(|grant| grant.token != ended.token);
                Some(News::Ended(ended))
            }
            WatchItem::Reached(_) if self.presenting => {
                self.presenting = false;
                let covered = self.names.iter().filter(|(_, followed)| followed.covered);
                let token = |followed: &Followed| followed.present.as_ref().map(|g| g.token);
                let present = covered.map(|(name, followed)| (name.clone(), token(followed)));
                Some(News::Present(present.collect()))
            }
            WatchItem::Reached(_) => None,
        }
    }

    /// Tells the observers of the names that there is news of.
    pub(super) fn tell(&self, news: &News) {
        let tell = |name: &LeaseName| {
            if let Some(followed) = self.names.get(name) {
                let observers = followed.observers.values();
                observers.for_each(|saw| saw(followed.present.clone()));
            }
        };
        match news {
            // Half of the present state is reported to no observer.
            News::Granted(_) | News::Ended(_) if self.presenting => {}
            News::Granted(name) => tell(name),
            News::Ended(ended) => tell(&ended.name),
            News::Present(present) => present.keys().for_each(tell),
        }
    }

    fn covered(&mut self, name: &LeaseName) -> Option<&mut Followed> {
        self.names.get_mut(name).filter(|followed| followed.covered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ringfence_proto::v1;

    use super::*;
    use crate::sync::lock;
    use crate::watch::Anew;
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
        fn saw(&self) -> Saw {
            let told = self.clone();
            Box::new(move |grant| lock(&told.0).push(grant.map_or(0, |g| g.token.get())))
        }

        fn so_far(&self) -> Vec<u64> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    fn play(state: &mut State, items: impl IntoIterator<Item = WatchItem>) {
        for item in items {
            if let Some(news) = state.take(item) {
                state.tell(&news);
            }
        }
    }

    #[test]
    fn each_observer_is_told_of_its_own_name_and_of_nothing_half_told() {
        let (one, two) = (Told::default(), Told::default());
        let mut state = State::new();
        state.join(&name("jobs/1"), one.saw());
        state.join(&name("jobs/2"), two.saw());
        let begins = [
            WatchItem::Anew(Anew::Start),
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
        state.join(&name("jobs/1"), Told::default().saw());
        let begins = [WatchItem::Anew(Anew::Start), present("jobs/1", 7)];
        play(
            &mut state,
            begins.into_iter().chain([WatchItem::Reached(position())]),
        );

        let (same, other) = (Told::default(), Told::default());
        state.join(&name("jobs/1"), same.saw());
        state.join(&name("jobs/2"), other.saw());
        assert_eq!(same.so_far(), [7]);
        assert!(state.is_incomplete());
        // Its present state is not known, so nothing is.
        play(&mut state, [granted("jobs/2", 9), ended("jobs/2", 9)]);
        assert_eq!(other.so_far(), []);

        let again = [WatchItem::Anew(Anew::Start), present("jobs/2", 11)];
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
        let first = state.join(&name("jobs/1"), Told::default().saw());
        let second = state.join(&name("jobs/1"), Told::default().saw());
        assert!(state.leave(&name("jobs/1"), first).is_some());
        assert_eq!(state.names.len(), 1);
        assert!(state.leave(&name("jobs/1"), second).is_some());
        assert!(state.names.is_empty());
        assert_eq!(state.uncovered, 0);
    }
}
