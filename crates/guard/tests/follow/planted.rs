//! The suite finds the followers that are wrong, and only those.

use std::collections::BTreeMap;

use ringfence_guard::follow::{FollowError, News, Unheard};
use ringfence_guard::{Fence, FencingToken, LeaseName};

use crate::suite::{Subject, Verdict, run};
use crate::support::{Followed, now, patient};

const BOTH: [Unheard; 2] = [Unheard::Plain, Unheard::Refuse];

/// The follower of this crate, behind a stream.
impl Subject for Followed {
    async fn tell(&mut self, news: News) {
        Self::tell(self, [news]).await;
    }

    async fn reconnect(&mut self) {
        let _told = self.end(None).await;
        self.connect();
    }

    async fn show(&mut self, fence: &Fence) -> Verdict {
        match now(self.follower.check(fence)) {
            None => Verdict::Waits,
            Some(Ok(())) => Verdict::Passes,
            Some(Err(FollowError::Refused(_))) => Verdict::Stale,
            Some(Err(other)) => panic!("neither passed nor stale: {other}"),
        }
    }
}

/// What can be wrong with a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The last one reported is the floor.
    FloorsGoBack,
    /// A floor counts only while the stream is live.
    FloorsNeedAStream,
    /// Floors are thrown away when the stream begins again.
    AnewForgets,
    /// What is above the floor passes, as if there were no stream.
    AboveIsNotAwaited,
    /// A name without a floor passes.
    UnknownNamePasses,
    /// One floor for all names.
    OneFloor,
    /// What was forgotten counts as the floor of all names that have none.
    ForgottenIsAFloor,
    /// The floor itself is refused.
    FloorItselfIsStale,
    /// The stream is live from its first word on.
    LiveTooSoon,
    /// The stream stays live when it ends.
    LiveBehindTheEnd,
    /// The stream stays live when it begins again.
    LiveWhenAnew,
}

/// A follower in a few lines, in which faults can be planted.
struct Small {
    fault: Fault,
    unheard: Unheard,
    floors: BTreeMap<LeaseName, FencingToken>,
    forgotten: Option<FencingToken>,
    live: bool,
}

impl Small {
    fn new(fault: Fault, unheard: Unheard) -> Self {
        Self {
            fault,
            unheard,
            floors: BTreeMap::new(),
            forgotten: None,
            live: false,
        }
    }

    fn floor(&self, name: &LeaseName) -> Option<FencingToken> {
        match self.fault {
            Fault::OneFloor => self.floors.values().copied().max(),
            Fault::FloorsNeedAStream if !self.live => None,
            Fault::ForgottenIsAFloor => self.floors.get(name).copied().or(self.forgotten),
            _ => self.floors.get(name).copied(),
        }
    }
}

impl Subject for Small {
    async fn tell(&mut self, news: News) {
        self.live |= self.fault == Fault::LiveTooSoon;
        match news {
            News::Floor { name, token } => {
                let floor = self.floors.entry(name).or_insert(token);
                *floor = match self.fault {
                    Fault::FloorsGoBack => token,
                    _ => token.max(*floor),
                };
            }
            News::Forgotten(token) => self.forgotten = Some(token),
            News::Reached => self.live = true,
            News::Anew => {
                self.live = self.fault == Fault::LiveWhenAnew;
                if self.fault == Fault::AnewForgets {
                    self.floors.clear();
                }
            }
            // It is bound to no cluster.
            News::Cluster(_) => {}
        }
    }

    async fn reconnect(&mut self) {
        self.live = self.fault == Fault::LiveBehindTheEnd;
    }

    async fn show(&mut self, fence: &Fence) -> Verdict {
        let floor = self.floor(&fence.name);
        if floor.is_some_and(|floor| fence.token < floor) {
            return Verdict::Stale;
        }
        if floor == Some(fence.token) {
            return match self.fault {
                Fault::FloorItselfIsStale => Verdict::Stale,
                _ => Verdict::Passes,
            };
        }
        let let_pass = match self.fault {
            Fault::AboveIsNotAwaited => floor.is_some(),
            Fault::UnknownNamePasses => floor.is_none(),
            _ => false,
        };
        if let_pass || (!self.live && self.unheard == Unheard::Plain) {
            Verdict::Passes
        } else {
            Verdict::Waits
        }
    }
}

#[tokio::test]
async fn the_follower_of_this_crate_passes_the_suite() {
    for unheard in BOTH {
        let passed = run(unheard, |unheard| Followed::start(patient(unheard))).await;
        assert_eq!(passed, Ok(()), "{unheard:?}");
        let passed = run(unheard, |unheard| Small::new(Fault::None, unheard)).await;
        assert_eq!(passed, Ok(()), "{unheard:?}");
    }
}

#[tokio::test]
async fn each_wrong_follower_is_found_by_the_story_that_it_spoils() {
    let overtaken = "an overtaken token is refused before the new one was shown";
    let never_granted = "a token that was never granted waits";
    let faults = [
        (Fault::FloorsGoBack, "floors never go back"),
        (
            Fault::FloorsNeedAStream,
            "floors stay true when the stream ends",
        ),
        (
            Fault::AnewForgets,
            "floors stay true when the stream begins anew",
        ),
        (Fault::AboveIsNotAwaited, never_granted),
        (
            Fault::UnknownNamePasses,
            "a name that was never granted waits",
        ),
        (Fault::OneFloor, "a name that was never granted waits"),
        (Fault::ForgottenIsAFloor, "what was forgotten is no floor"),
        (Fault::FloorItselfIsStale, overtaken),
    ];
    for (fault, story) in faults {
        for unheard in BOTH {
            let found = run(unheard, |unheard| Small::new(fault, unheard)).await;
            assert_eq!(found, Err(story), "{fault:?}, {unheard:?}");
        }
    }
}

/// A follower that is taken for live waits where a plain guard should decide: only the plain
/// setting shows it.
#[tokio::test]
async fn a_follower_that_takes_a_stream_for_live_is_found() {
    let faults = [
        (
            Fault::LiveTooSoon,
            "before everything was told nothing above a floor is known",
        ),
        (
            Fault::LiveBehindTheEnd,
            "behind an end nothing above a floor is known",
        ),
        (Fault::LiveWhenAnew, "anew nothing above a floor is known"),
    ];
    for (fault, story) in faults {
        let found = run(Unheard::Plain, |unheard| Small::new(fault, unheard)).await;
        assert_eq!(found, Err(story), "{fault:?}");
    }
}
