//! A guard that knows what the cluster has granted: it follows the floors of lease names.
//!
//! A guard alone learns of a new grant when that shows its fence. Until then it takes the old
//! holder's writes, which is right (the new one has not read yet) and still wasted work; and it
//! takes a token that was never granted, if that is greater than its mark, and shuts the true
//! holder out. A [`FloorFollower`] closes both gaps as far as a stream can: the cluster tells the
//! *floor* of each name, the greatest token ever granted for it, and then each rise, in order.
//!
//! # What it decides
//! | the token offered is | the stream is live | it is not, [`Unheard::Plain`] | it is not, [`Unheard::Refuse`] |
//! |---|---|---|---|
//! | below the floor | refused: `STALE_TOKEN` | the same | the same |
//! | the floor | passes | passes | passes |
//! | above it, or the name has none | waits for the stream, up to [`Options::patience`]; then refused: `UNKNOWN_TOKEN` | passes | waits as long for the stream; then refused: `NO_FLOORS` |
//!
//! A true token was committed before its holder could show it, so the stream brings it, and a forged
//! one never comes. Both refusals behind a wait may be repeated; neither says that a lease is lost.
//!
//! # What it never does
//! It does not replace the mark in the store. What passes here can become stale before it writes,
//! so the store's own transaction admits the fence again. It can only refuse what the store would
//! take, so a stream that is late, broken or behind makes nothing less safe than no stream: floors
//! that were reported stay true, since no token is ever taken back.
//!
//! # When the stream fails
//! * *Late*: true tokens wait as long as it is late, up to the patience, and pass.
//! * *Silent* for longer than [`Options::silence`] (the cluster says something every second):
//!   not live until it says again that everything was reported.
//! * *Begun again*, since what it was to tell next is compacted or another node answers: the
//!   floors known are kept, and it is live once all floors have been reported.
//! * *Ended*: not live. [`FloorFollower::follow`] returns; call it with a new stream.
//! * *Another cluster*: floors are kept, for a restored cluster grants greater tokens. Do not follow
//!   a cluster with a replaced clock (`--token-floor`) that was wiped: its tokens repeat. A follower
//!   that is bound to clusters takes nothing of another one.
//!
//! # Bound to clusters
//! [`Options::clusters`] names the clusters whose floors are taken. A stream says of which cluster it
//! is before its first floor ([`News::Cluster`]); one of another cluster, or one that does not say so,
//! raises no floor and is never live, and [`FloorFollower::follow`] returns
//! [`Ended::OtherCluster`]. So a follower that is connected to a wrong cluster by mistake refuses
//! no holder with the floors of that one, and with [`Unheard::Refuse`] lets no new holder pass.
//!
//! A follower that is bound to no cluster takes the next one that tells it something. The floors
//! stand, but the newest token of a name passes only once the new cluster has reported it: a restored
//! cluster reports nothing of names that it has not granted. Until then such a token is refused as
//! unknown, for now: [`FollowError::UnknownToken`].
//!
//! What it does not cover:
//! * A fence is `NAME#TOKEN` and names no cluster. [`FloorFollower::check`] compares no cluster, so a
//!   token of another cluster that equals the floor passes. [`FloorFollower::check_of`] compares what
//!   the caller says, which is a protection against mistakes, not against a caller that lies.
//! * The mark in the store names no cluster either: what reaches the store past the follower is
//!   admitted by its token alone.
//! * While no stream is live, [`Unheard::Plain`] lets a token above the floor pass, of whichever cluster.
//! * The id is what the cluster says of itself; that it is that cluster, only TLS proves.
//!
//! # Memory
//! One token and one name for each name reported, at most [`Options::names_max`] names and
//! [`Options::bytes_max`] bytes. Beyond that the name whose last grant is the oldest is forgotten, and
//! known again with its next grant. A token that may be one of a forgotten name (it is not greater
//! than the greatest floor that was forgotten) passes with [`Unheard::Plain`], and is refused at once
//! with [`Unheard::Refuse`]: `FORGOTTEN_FLOOR`. Follow a prefix to have fewer names. At most [`Options::waiters_max`] requests wait at a time; one more is refused at once.
//!
//! # With the client
//! The client's stream of floors opens itself again at another node when one fails:
//!
//! ```text
//! tokio::spawn(async move { follower.follow(client.watch_floors("bank/")).await });
//! ```
//!
//! # Example
//! ```
//! use ringfence_guard::Fence;
//! use ringfence_guard::follow::{FloorFollower, FollowError, News, Options};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let follower = FloorFollower::new(Options::default());
//! let (old, new): (Fence, Fence) = ("bank/balance#8".parse()?, "bank/balance#9".parse()?);
//!
//! // In a service `follow` runs in a task of its own; here the cluster's news are made by hand.
//! follower.tell(News::Floor { name: new.name.clone(), token: new.token });
//! follower.tell(News::Reached);
//!
//! // The holder of 9 has not written yet, and the old one is refused already.
//! let refused = follower.check(&old).await.unwrap_err();
//! assert!(matches!(refused, FollowError::Refused(why) if why.ends_the_grant()));
//! follower.check(&new).await?;
//!
//! // No holder was ever granted this one.
//! let forged: Fence = "bank/balance#9000".parse()?;
//! let refused = follower.check(&forged).await.unwrap_err();
//! assert!(matches!(refused, FollowError::UnknownToken { .. }));
//! # Ok(())
//! # }
//! ```

mod error;
mod floors;
mod options;
mod state;
mod waiting;

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_core::Stream;
use ringfence_core::{ClusterId, FencingToken, LeaseName};

/// One thing that a stream of floors tells. [`News::Forgotten`] decides nothing here: a name without a
/// floor has no holder, whatever was forgotten.
pub use ringfence_core::FloorNews as News;

use crate::{Admitted, Fence, Guard};

pub use error::FollowError;
pub use options::{BYTES_MAX, NAMES_MAX, Options, PATIENCE, SILENCE, Unheard, WAITERS_MAX};
use state::Shared;
use waiting::next_of;

/// Why a stream is followed no longer.
#[derive(Debug)]
pub enum Ended<E> {
    /// It said that it is over. Follow a new one.
    Over,
    /// It failed. Follow a new one, unless the error says that this is of no use.
    Failed(E),
    /// This cluster sends it, and the follower is bound to others: see [`Options::clusters`].
    OtherCluster(ClusterId),
}

/// Knows the newest floor of each lease name, from a stream; see the [module](self).
///
/// Clones share what they know.
#[derive(Clone)]
pub struct FloorFollower {
    shared: Arc<Shared>,
}

impl FloorFollower {
    /// A follower that received nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            shared: Arc::new(Shared::new(options)),
        }
    }

    /// Takes in what the stream tells, until that ends. Run it in a task of its own; when the future
    /// is dropped, the stream counts as ended. One stream at a time.
    pub async fn follow<S, N, E>(&self, news: S) -> Ended<E>
    where
        S: Stream<Item = Result<N, E>>,
        N: Into<News>,
    {
        // Also when this future is dropped: no task tells anything from then on.
        let _unheard = Unlive(&self.shared);
        let mut news = pin!(news);
        let silence = self.shared.options.silence;
        loop {
            match tokio::time::timeout(silence, next_of(news.as_mut())).await {
                Err(_) => self.shared.set_live(false),
                Ok(Some(Ok(one))) => match one.into() {
                    News::Cluster(cluster) if !self.shared.told_by(cluster) => {
                        return Ended::OtherCluster(cluster);
                    }
                    one => self.tell(one),
                },
                Ok(Some(Err(error))) => return Ended::Failed(error),
                Ok(None) => return Ended::Over,
            }
        }
    }

    /// Takes in one report, for those who have no [`Stream`]. What [`FloorFollower::follow`]
    /// adds is to notice silence and the end.
    pub fn tell(&self, news: News) {
        match news {
            News::Floor { name, token } => self.shared.raise(name, token),
            News::Forgotten(_) => {}
            News::Reached => self.shared.set_live(true),
            News::Anew => self.shared.set_live(false),
            News::Cluster(cluster) => {
                self.shared.told_by(cluster);
            }
        }
    }

    /// [`FloorFollower::check`] for a caller that says which cluster granted the fence, as its session
    /// handle or its client does: a fence itself carries no cluster.
    ///
    /// A door of the tower layer that is made of this reports the refusal as one that may be repeated.
    ///
    /// # Errors
    /// [`FollowError::OtherCluster`], at once, unless this follower is bound to that cluster or to
    /// none; else as [`FloorFollower::check`].
    pub async fn check_of(&self, cluster: ClusterId, fence: &Fence) -> Result<(), FollowError> {
        if !self.shared.takes(cluster) {
            return Err(FollowError::OtherCluster {
                name: fence.name.clone(),
                offered: fence.token,
                cluster,
                expected: self.shared.options.clusters.clone(),
            });
        }
        self.check(fence).await
    }

    /// Passes a fence whose token the cluster has granted and not yet followed by another; waits,
    /// at most [`Options::patience`], for the stream to tell of a token above the floor. Dropping the
    /// future leaves nothing behind.
    ///
    /// Do it before the store's transaction is opened, never in it: it may wait, and the mark of
    /// the store decides.
    ///
    /// # Errors
    /// [`FollowError::Refused`] with [`Refused::StaleToken`](crate::Refused::StaleToken) for a token
    /// below the floor, which stands in it as the mark: final for that grant.
    /// [`FollowError::UnknownToken`], [`FollowError::NoFloors`], [`FollowError::Forgotten`] and
    /// [`FollowError::Crowded`] may be repeated.
    pub async fn check(&self, fence: &Fence) -> Result<(), FollowError> {
        if let Some(decided) = self.shared.judge(fence) {
            return decided;
        }
        let Some(_place) = self.shared.take_place() else {
            return Err(FollowError::Crowded {
                max: self.shared.options.waiters_max,
            });
        };
        let decided = self.shared.decided(fence);
        match tokio::time::timeout(self.shared.options.patience, decided).await {
            Ok(decided) => decided,
            Err(_) => Err(self.shared.not_told(fence)),
        }
    }

    /// [`FloorFollower::check`], and then [`Guard::admit`]: what passes here raises the mark.
    ///
    /// # Errors
    /// As [`FloorFollower::check`]; [`FollowError::Refused`] also for what the guard refuses.
    pub async fn admit(&self, guard: &Guard, fence: &Fence) -> Result<Admitted, FollowError> {
        // The guard of one lease need not wait for floors of another.
        fence.check_lease(guard.name())?;
        self.check(fence).await?;
        Ok(guard.admit(fence)?)
    }

    /// The newest floor reported for a name.
    #[must_use]
    pub fn floor(&self, name: &LeaseName) -> Option<FencingToken> {
        self.shared.floor(name)
    }

    /// Whether the stream is live: it has reported everything and was not silent since.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.shared.is_live()
    }

    /// How many names have a floor here, and whether any was forgotten for one granted later.
    #[must_use]
    pub fn names(&self) -> (usize, bool) {
        self.shared.names()
    }

    /// Completes with the floor of a name as soon as one is known that is greater than `above`.
    pub async fn risen(&self, name: &LeaseName, above: Option<FencingToken>) -> FencingToken {
        self.shared.risen(name, above).await
    }

    /// Hands each rise of a name's floor to `raise`, until that fails: the task that keeps the mark
    /// in a store at the floor, so that the store's own transaction refuses the old holder before the
    /// new one has been there. Rises that come while `raise` runs are handed over as one.
    ///
    /// ```no_run
    /// use std::convert::Infallible;
    /// use std::sync::Arc;
    ///
    /// use ringfence_guard::Guard;
    /// use ringfence_guard::follow::FloorFollower;
    ///
    /// fn keep_up(follower: FloorFollower, guard: Arc<Guard>) {
    ///     tokio::spawn(async move {
    ///         let name = guard.name().clone();
    ///         // With a database: its `advance_to`, on a connection of this task's own.
    ///         let raise = |floor| std::future::ready(Ok::<_, Infallible>(guard.advance_to(floor)));
    ///         follower.feed(&name, raise).await
    ///     });
    /// }
    /// ```
    ///
    /// # Errors
    /// The first error of `raise`. Call it again to go on: it begins with the present floor.
    pub async fn feed<F, Fut, E>(&self, name: &LeaseName, mut raise: F) -> Result<Infallible, E>
    where
        F: FnMut(FencingToken) -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let mut fed = None;
        loop {
            let floor = self.risen(name, fed).await;
            raise(floor).await?;
            fed = Some(floor);
        }
    }
}

impl Default for FloorFollower {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl fmt::Debug for FloorFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, _) = self.names();
        f.debug_struct("FloorFollower")
            .field("names", &names)
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// The stream is not live any more when it is dropped.
struct Unlive<'a>(&'a Shared);

impl Drop for Unlive<'_> {
    fn drop(&mut self) {
        self.0.unheard();
    }
}
