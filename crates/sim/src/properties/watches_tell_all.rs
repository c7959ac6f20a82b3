//! I14: a watch tells every grant and every end, in log order, once; and goes on behind what it
//! reported when it is resumed. Only a watch that begins with the present may leave something out.
//! No position that was reported is refused later.

use std::collections::BTreeMap;

use ringfence_check::history::{WatchEvent, WatchKind};
use ringfence_core::Event;

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

/// The index of an entry, and a place among its events, from 1.
type Position = (u64, u32);

#[derive(Default)]
pub(super) struct WatchesTellAll {
    /// What there is to tell: lease, token, and whether it is a grant.
    log: BTreeMap<Position, (String, u64, bool)>,
    watches: BTreeMap<u32, Watch>,
}

#[derive(Clone, Default)]
struct Watch {
    prefix: String,
    /// Everything up to here was reported; unknown for one that began at the present.
    told: Option<Position>,
}

impl Property for WatchesTellAll {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Applied(applied) if applied.first => {
                self.entry(applied);
                Ok(())
            }
            Observation::WatchStarted(started) => {
                let watch = self.watches.entry(started.watcher).or_default();
                watch.prefix.clone_from(&started.prefix);
                match (started.after, watch.told) {
                    (Some(after), Some(told)) if after != told => Err(format!(
                        "{} goes on behind {after:?}, reported {told:?}",
                        started.watcher
                    )),
                    (after, _) => {
                        watch.told = after;
                        Ok(())
                    }
                }
            }
            Observation::WatchEvent(event) => self.event(event),
            Observation::WatchProgress(progress) => {
                let upto = (progress.index, u32::MAX);
                self.tell(progress.watcher, upto, None)
            }
            Observation::WatchRefused {
                watcher,
                after,
                newest,
            } => Err(format!(
                "{watcher} received {after:?}, and was refused it by a node that has reached {newest}"
            )),
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I14", why))
    }
}

impl WatchesTellAll {
    fn entry(&mut self, applied: &Applied) {
        for (n, event) in (1..).zip(&applied.events) {
            let told = match event {
                Event::Granted(granted) => (granted.name.to_string(), granted.token.get(), true),
                Event::Ended { name, token, .. } => (name.to_string(), token.get(), false),
                _ => continue,
            };
            self.log.insert((applied.entry.index, n), told);
        }
    }

    fn event(&mut self, event: &WatchEvent) -> Result<(), String> {
        let at = (event.index, event.n);
        let granted = event.kind == WatchKind::Granted;
        let what = (event.lease.clone(), event.token, granted);
        if self.log.get(&at) != Some(&what) {
            let there = self.log.get(&at);
            return Err(format!(
                "{event:?} was reported, the log has {there:?} there"
            ));
        }
        self.tell(event.watcher, at, Some(at))
    }

    /// The watch is behind `upto` now; of what was not reported before only `this` was reported
    /// with it.
    fn tell(&mut self, watcher: u32, upto: Position, this: Option<Position>) -> Result<(), String> {
        let watch = self.watches.entry(watcher).or_default();
        if let Some(told) = watch.told {
            if upto < told || this.is_some_and(|this| this <= told) {
                return Err(format!("watch {watcher} reported {upto:?} behind {told:?}"));
            }
            let mut between = self.log.range((told.0, told.1.saturating_add(1))..=upto);
            let left_out = between.find(|(at, (lease, ..))| {
                Some(**at) != this && **at > told && lease.starts_with(&watch.prefix)
            });
            if let Some(left_out) = left_out {
                return Err(format!(
                    "watch {watcher} reported {upto:?} and left out {left_out:?}"
                ));
            }
        }
        watch.told = Some(upto);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringfence_check::history::{WatchProgress, WatchStarted};

    use super::super::scene::{Scene, broken};
    use super::*;

    /// Grants at 1 and 3 and an end at 2, and a watch from the beginning.
    fn scene() -> Scene<WatchesTellAll> {
        let mut scene = Scene::of(WatchesTellAll::default());
        scene.grant("a", 1, 5, 1).unwrap();
        scene.release("a", 1, 5, 2).unwrap();
        scene.grant("a", 2, 6, 1).unwrap();
        scene.see(started(Some((0, 0)))).unwrap();
        scene
    }

    fn started(after: Option<Position>) -> Observation {
        Observation::WatchStarted(WatchStarted {
            watcher: 1,
            client: 9,
            t: 0,
            prefix: String::new(),
            after,
        })
    }

    fn granted(index: u64, token: u64) -> Observation {
        Observation::WatchEvent(WatchEvent {
            watcher: 1,
            t: 0,
            index,
            n: 1,
            kind: WatchKind::Granted,
            lease: "a".into(),
            token,
            session: None,
            holder: None,
        })
    }

    fn progress(index: u64) -> Observation {
        Observation::WatchProgress(WatchProgress {
            watcher: 1,
            t: 0,
            index,
        })
    }

    #[test]
    fn a_gap_is_noticed() {
        let mut scene = scene();
        scene.see(granted(1, 5)).unwrap();
        broken(scene.see(granted(3, 6)), "I14");
    }

    #[test]
    fn progress_past_what_was_not_told_is_noticed() {
        let mut scene = scene();
        scene.see(granted(1, 5)).unwrap();
        broken(scene.see(progress(2)), "I14");
    }

    #[test]
    fn a_repetition_is_noticed() {
        let mut scene = scene();
        scene.see(granted(1, 5)).unwrap();
        broken(scene.see(granted(1, 5)), "I14");
    }

    #[test]
    fn what_never_happened_is_noticed() {
        broken(scene().see(granted(2, 5)), "I14");
    }

    #[test]
    fn a_watch_that_goes_on_elsewhere_than_it_stopped_is_noticed() {
        let mut scene = scene();
        scene.see(granted(1, 5)).unwrap();
        scene.see(started(Some((1, 1)))).unwrap();
        broken(scene.see(started(Some((2, 1)))), "I14");
    }

    #[test]
    fn a_position_that_was_told_and_is_refused_is_noticed() {
        let refused = Observation::WatchRefused {
            watcher: 1,
            after: (1, 1),
            newest: 0,
        };
        broken(scene().see(refused), "I14");
    }

    #[test]
    fn a_watch_that_begins_anew_may_leave_out_what_was() {
        let mut scene = scene();
        scene.see(granted(1, 5)).unwrap();
        scene.see(started(None)).unwrap();
        scene.see(progress(2)).unwrap();
        scene.see(granted(3, 6)).unwrap();
    }
}
