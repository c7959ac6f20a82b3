//! What a follower knows, and how it judges by it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_core::{FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};

use super::waiting::Waiting;
use super::{FollowError, Options, Unheard};
use crate::{Fence, Refused};

pub(super) struct Shared {
    pub(super) options: Options,
    known: Mutex<Known>,
    /// How many requests wait; never above `waiters_max`.
    places: AtomicUsize,
}

#[derive(Default)]
struct Known {
    /// Only grows, in names and in tokens; never above `names_max` names.
    floors: HashMap<LeaseName, FencingToken>,
    /// Something was told of a name for which there was no room.
    overflowed: bool,
    live: bool,
    waiting: Waiting,
}

impl Known {
    /// Whether a token above what is known of a name can be told from a forged one.
    fn hears_of(&self, name: &LeaseName) -> bool {
        self.live && (!self.overflowed || self.floors.contains_key(name))
    }
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            known: Mutex::default(),
            places: AtomicUsize::new(0),
        }
    }

    /// No code that holds the lock can panic half-way, so its poison is ignored.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raise(&self, name: LeaseName, token: FencingToken) {
        let mut known = self.known();
        let known = &mut *known;
        if let Some(floor) = known.floors.get_mut(&name) {
            // A stream that begins anew may tell what is older.
            if *floor >= token {
                return;
            }
            *floor = token;
        } else if known.floors.len() < self.options.names_max {
            known.floors.insert(name.clone(), token);
        } else {
            // What was told of any name may be missing from now on.
            if !std::mem::replace(&mut known.overflowed, true) {
                known.waiting.wake_all();
            }
            return;
        }
        known.waiting.wake(&name);
    }

    pub(super) fn set_live(&self, live: bool) {
        let mut known = self.known();
        if known.live != live {
            known.live = live;
            known.waiting.wake_all();
        }
    }

    /// What is to be said of a fence at once; `None`: it has to wait.
    pub(super) fn judge(&self, fence: &Fence) -> Option<Result<(), FollowError>> {
        let known = self.known();
        match known.floors.get(&fence.name) {
            Some(&floor) if fence.token < floor => Some(Err(Refused::StaleToken {
                name: fence.name.clone(),
                offered: fence.token,
                mark: floor,
            }
            .into())),
            Some(&floor) if fence.token == floor => Some(Ok(())),
            Some(_) if planted(Bug::UnknownTokenAdmitted) => Some(Ok(())),
            _ if known.hears_of(&fence.name) => None,
            _ => match self.options.unheard {
                Unheard::Plain => Some(Ok(())),
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
        if known.hears_of(&name) {
            let floor = known.floors.get(&name).copied();
            FollowError::UnknownToken {
                name,
                offered,
                floor,
            }
        } else {
            FollowError::NoFloors { name, offered }
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
        self.known().floors.get(name).copied()
    }

    pub(super) fn is_live(&self) -> bool {
        self.known().live
    }

    pub(super) fn names(&self) -> (usize, bool) {
        let known = self.known();
        (known.floors.len(), known.overflowed)
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

    /// Asks `ready` now and whenever something was told that concerns `name`.
    async fn wait<T>(&self, name: &LeaseName, mut ready: impl FnMut() -> Option<T>) -> T {
        let notify = self.known().waiting.join(name);
        let _leave = Leave { shared: self, name };
        loop {
            let mut woken = pin!(notify.notified());
            // Before it asks: what is told in between wakes it.
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
