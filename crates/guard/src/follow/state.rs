//! What a follower knows, and how it judges by it.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_core::{ClusterId, FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};

use super::floors::Floors;
use super::waiting::Waiting;
use super::{FollowError, Options, Unheard};
use crate::Fence;

pub(super) struct Shared {
    pub(super) options: Options,
    known: Mutex<Known>,
    /// How many requests wait; never above `waiters_max`.
    places: AtomicUsize,
}

struct Known {
    floors: Floors,
    live: bool,
    /// Who tells; `None` before the stream said so.
    cluster: Option<ClusterId>,
    /// Whose floors these are: the last cluster that was taken.
    last: Option<ClusterId>,
    waiting: Waiting,
}

impl Known {
    /// Whether this may be the floor of a name that was forgotten here. A token above each floor
    /// that was forgotten is not: the stream tells of it, if it was granted.
    fn may_be_forgotten(&self, fence: &Fence) -> bool {
        self.floors.get(&fence.name).is_none() && self.floors.forgotten() >= Some(fence.token)
    }
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        Self {
            known: Mutex::new(Known {
                floors: Floors::new(options.names_max, options.bytes_max),
                live: false,
                cluster: None,
                last: None,
                waiting: Waiting::default(),
            }),
            options,
            places: AtomicUsize::new(0),
        }
    }

    /// No code that holds the lock can panic half-way, so its poison is ignored.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a fence or floor of this cluster is taken.
    pub(super) fn takes(&self, cluster: ClusterId) -> bool {
        let clusters = &self.options.clusters;
        clusters.is_empty() || clusters.contains(&cluster) || planted(Bug::FloorsOfAnyCluster)
    }

    /// Whether what the stream tells now is taken: a follower that is bound to clusters takes nothing
    /// of one that has not said which it is.
    fn takes_news(&self, known: &Known) -> bool {
        match known.cluster {
            Some(cluster) => self.takes(cluster),
            None => self.options.clusters.is_empty() || planted(Bug::FloorsOfAnyCluster),
        }
    }

    /// Notes who tells what follows; says whether that is taken. Another cluster than before, which was
    /// restored from it, say, has to report a floor itself before its grant counts as the newest: it
    /// reports nothing of names that it has not granted, and their last grants may have ended.
    pub(super) fn told_by(&self, cluster: ClusterId) -> bool {
        let takes = self.takes(cluster);
        let mut known = self.known();
        known.cluster = Some(cluster);
        if !takes {
            drop(known);
            self.set_live(false);
            return false;
        }
        let last = known.last.replace(cluster);
        if last.is_some_and(|last| last != cluster) && !planted(Bug::FloorsOutliveTheirCluster) {
            known.floors.change_cluster();
            known.waiting.wake_all();
        }
        true
    }

    /// The next stream has to say again who tells it.
    pub(super) fn unheard(&self) {
        self.known().cluster = None;
        self.set_live(false);
    }

    pub(super) fn raise(&self, name: LeaseName, token: FencingToken) {
        let mut known = self.known();
        if !self.takes_news(&known) {
            return;
        }
        let forgotten = known.floors.forgotten();
        if known.floors.raise(name.clone(), token) {
            known.waiting.wake(&name);
        }
        // Names for which requests wait may be among those that were forgotten.
        if known.floors.forgotten() != forgotten {
            known.waiting.wake_all();
        }
    }

    pub(super) fn set_live(&self, live: bool) {
        let mut known = self.known();
        let live = live && self.takes_news(&known);
        if known.live != live {
            known.live = live;
            known.waiting.wake_all();
        }
    }

    /// What is to be said of a fence at once; `None`: it has to wait.
    pub(super) fn judge(&self, fence: &Fence) -> Option<Result<(), FollowError>> {
        let known = self.known();
        match known.floors.get(&fence.name) {
            Some(floor) if fence.token < floor => Some(Err(fence.overtaken_by(floor).into())),
            Some(floor) if fence.token == floor && known.floors.is_current(&fence.name) => {
                Some(Ok(()))
            }
            Some(_) if planted(Bug::UnknownTokenAdmitted) => Some(Ok(())),
            _ if known.live && !known.may_be_forgotten(fence) => None,
            _ => match self.options.unheard {
                Unheard::Plain => Some(Ok(())),
                // What was reported and forgotten is not reported again: to wait would be of no
                // use.
                Unheard::Refuse if known.live => Some(Err(self.forgotten(fence))),
                Unheard::Refuse => None,
            },
        }
    }

    /// Waits until something can be said of a fence.
    pub(super) async fn decided(&self, fence: &Fence) -> Result<(), FollowError> {
        self.wait(&fence.name, || self.judge(fence)).await
    }

    /// What is said of a fence at the end of the wait.
    pub(super) fn not_told(&self, fence: &Fence) -> FollowError {
        let known = self.known();
        let (name, offered) = (fence.name.clone(), fence.token);
        if known.live {
            let floor = known.floors.get(&name);
            FollowError::UnknownToken {
                name,
                offered,
                floor,
            }
        } else {
            FollowError::NoFloors { name, offered }
        }
    }

    fn forgotten(&self, fence: &Fence) -> FollowError {
        FollowError::Forgotten {
            name: fence.name.clone(),
            offered: fence.token,
            names_max: self.options.names_max,
            bytes_max: self.options.bytes_max,
        }
    }

    pub(super) async fn risen(
        &self,
        name: &LeaseName,
        above: Option<FencingToken>,
    ) -> FencingToken {
        self.wait(name, || {
            self.floor(name).filter(|&floor| Some(floor) > above)
        })
        .await
    }

    pub(super) fn floor(&self, name: &LeaseName) -> Option<FencingToken> {
        self.known().floors.get(name)
    }

    pub(super) fn is_live(&self) -> bool {
        self.known().live
    }

    pub(super) fn names(&self) -> (usize, bool) {
        let known = self.known();
        (known.floors.len(), known.floors.forgotten().is_some())
    }

    /// Room for one more request to wait, until the place is dropped.
    pub(super) fn take_place(&self) -> Option<Place<'_>> {
        let max = self.options.waiters_max;
        self.places
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < max).then_some(taken + 1)
            })
            .ok()
            .map(|_| Place(&self.places))
    }

    /// Asks `ready` now and whenever something was reported that concerns `name`.
    async fn wait<T>(&self, name: &LeaseName, mut ready: impl FnMut() -> Option<T>) -> T {
        let notify = self.known().waiting.join(name);
        let _leave = Leave { shared: self, name };
        loop {
            let mut woken = pin!(notify.notified());
            // Before it asks: what is reported in between wakes it.
            woken.as_mut().enable();
            if let Some(value) = ready() {
                return value;
            }
            woken.await;
        }
    }
}

/// One who waits; its place is free again when it is dropped.
pub(super) struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Leave<'a> {
    shared: &'a Shared,
    name: &'a LeaseName,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.shared.known().waiting.leave(self.name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_dropped_wait_leaves_nothing_behind() {
        let shared = Shared::new(Options::default());
        let name = LeaseName::parse("db").unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut first = pin!(shared.risen(&name, None));
            let mut second = pin!(shared.risen(&name, None));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert_eq!(shared.known().waiting.len(), 1);

            shared.raise(name.clone(), FencingToken::new(4).unwrap());
            assert_eq!(
                first.as_mut().poll(&mut cx),
                Poll::Ready(FencingToken::new(4).unwrap())
            );
        }
        assert_eq!(shared.known().waiting.len(), 0);
    }

    #[test]
    fn another_cluster_has_to_report_the_newest_grant_of_a_name_itself() {
        let shared = Shared::new(Options::default());
        let fence = Fence::parse("db#4").unwrap();
        let hear = |cluster| {
            shared.unheard();
            assert!(shared.told_by(ClusterId::new([cluster; 16])));
            shared.set_live(true);
        };
        hear(1);
        shared.raise(fence.name.clone(), fence.token);
        assert!(matches!(shared.judge(&fence), Some(Ok(()))));
        hear(1);
        assert!(
            matches!(shared.judge(&fence), Some(Ok(()))),
            "the same cluster again"
        );
        hear(2);
        let judged = shared.judge(&fence);
        assert!(
            judged.is_none(),
            "the cluster that was restored from it has granted nothing yet: {judged:?}"
        );
        assert!(matches!(
            shared.not_told(&fence),
            FollowError::UnknownToken { .. }
        ));
        hear(1);
        shared.raise(fence.name.clone(), fence.token);
        assert!(
            matches!(shared.judge(&fence), Some(Ok(()))),
            "the first one reports it again"
        );
    }

    #[test]
    fn places_are_given_back() {
        let shared = Shared::new(Options {
            waiters_max: 1,
            ..Options::default()
        });
        let place = shared.take_place();
        assert!(place.is_some());
        assert!(shared.take_place().is_none());
        drop(place);
        assert!(shared.take_place().is_some());
    }
}
